"""An approximate index of vectors (usearch's HNSW graph, float16), built once and mapped into memory by searches.

VECTORS/index/
    vectors.usearch   the graph
    manifest.json     written last: fingerprint of the vectors, number of rows

Malkov & Yashunin 2018, arXiv:1603.09320.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import storage
from pipeline.embed.folder import INDEX
from pipeline.embed.search import Hits, comparable, sorted_hits
from pipeline.embed.vectors import Vectors
from pipeline.errors import ConfigError
from pipeline.local_files import scratch_folder
from pipeline.locations import is_url
from pipeline.locks import locked_name
from pipeline.reporting import Report

GRAPH = "vectors.usearch"
FROM = 1_000_000
"""Number of vectors above which the setting `auto` searches with an index."""
CONNECTIVITY, EXPANSION_ADD, EXPANSION_SEARCH = 16, 128, 256
"""Neighbours of each vector in the graph, candidates while adding a vector, and candidates while searching."""
CANDIDATES_PER_TEXT = 4
"""Vectors that are taken from the index per text to find. These vectors are then ranked by exact similarity."""


def wants_index(setting: str, vectors: Vectors) -> bool:
    """Return whether a search uses an index. Raises ConfigError if the search needs usearch, which is missing."""
    if setting == "off" or (setting == "auto" and vectors.count <= FROM):
        return False
    _usearch()
    return True


def _usearch() -> Any:
    """Return usearch's class Index. Raises ConfigError if usearch is not installed."""
    try:
        from usearch.index import Index
    except ImportError as error:
        raise ConfigError(
            "index needs usearch: pip install 'bertstream[index]', or compare with all vectors with --index off"
        ) from error
    return Index


def index_hits(vectors: Vectors, queries: np.ndarray, top: int, report: Report) -> Hits:
    """Find the `top` most similar texts for each query (Q, D) with the index. Build the index if needed.

    The index chooses candidates. The candidates are then ordered by exact similarity.
    """
    compared = comparable(queries, vectors.model.similarity)
    graph = _opened(vectors, report)
    chosen = _candidates(graph, vectors, compared, top)
    rows = vectors.rows_of(sorted({row for of_query in chosen for row in of_query}), with_vectors=True)
    hits = []
    for query, of_query in zip(compared, chosen):
        best: dict[int, tuple[int, float]] = {}
        for row in of_query:
            score = float(query @ comparable(rows[row]["vector"][None], vectors.model.similarity)[0])
            text = row - rows[row]["chunk"]
            if text not in best or score > best[text][1]:
                best[text] = (row, score)
        hits.append(list(best.values()))
    return sorted_hits(hits, min(top, max(map(len, hits), default=0)))


def _candidates(graph: Any, vectors: Vectors, queries: np.ndarray, top: int) -> list[list[int]]:
    """Return the candidate rows for each query."""
    count = min(top * CANDIDATES_PER_TEXT, vectors.count)
    graph.expansion_search = max(EXPANSION_SEARCH, count)
    found = graph.search(queries, count)
    keys = np.asarray(found.keys).reshape(len(queries), -1)
    counts = np.asarray(getattr(found, "counts", [keys.shape[1]] * len(queries)))
    return [of_query[:valid].astype(np.int64).tolist() for of_query, valid in zip(keys, counts)]


def _opened(vectors: Vectors, report: Report) -> Any:
    """Return the index, mapped into memory. Build it if it is missing, damaged, or belongs to other vectors."""
    if is_url(vectors.folder):
        raise ConfigError(
            f"index needs vectors on this machine, but vectors ({vectors.folder}) is a URL: copy the folder to this "
            "machine, or give --index off"
        )
    folder = storage.join(vectors.folder, INDEX)
    with locked_name(folder, wait=True):  # so that two searches do not build the index at the same time
        about = storage.read_object(storage.join(folder, storage.MANIFEST))
        if about is None or about.get("vectors") != vectors.fingerprint or storage.damage(folder):
            if about is not None:
                report(
                    f"{folder} is damaged, or is an index of vectors {about.get('vectors')} instead of "
                    f"{vectors.fingerprint}: building the index again"
                )
            _build(vectors, folder, report)
    return _usearch().restore(f"{folder}/{GRAPH}", view=True)


def _build(vectors: Vectors, folder: str, report: Report) -> None:
    """Build the index of the vectors, and publish it in a folder."""
    report(f"building an index of {vectors.count:,} vectors: {folder}")
    dimension = vectors.model.dimension
    metric = "ip" if vectors.model.similarity == "dot" else "cos"
    graph = _usearch()(
        ndim=dimension, metric=metric, dtype="f16", connectivity=CONNECTIVITY, expansion_add=EXPANSION_ADD
    )
    for block in vectors.blocks():
        keys = np.arange(block.first, block.first + len(block.vectors), dtype=np.uint64)
        graph.add(keys, comparable(block.vectors, vectors.model.similarity), threads=os.cpu_count() or 1)
    with scratch_folder("index") as scratch:
        graph.save(str(Path(scratch) / GRAPH))
        storage.publish(Path(scratch), folder, {"vectors": vectors.fingerprint, "rows": vectors.count})
