"""An approximate index of vectors (usearch's HNSW graph, float16), built once and mapped into memory by searches.

VECTORS/index/
    vectors.usearch   the graph
    manifest.json     written last: fingerprint of the vectors, number of rows, size and digest of the graph
    checked.json      size and time of the graph at its last check: it is checked again only if they change

Malkov & Yashunin 2018, arXiv:1603.09320.
"""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.embed.folder import INDEX
from pipeline.embed.search import Hits, comparable, exact_hits, exact_scores, sorted_hits
from pipeline.embed.vectors import Vectors
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.files.locations import is_url
from pipeline.files.locks import locked_name
from pipeline.reporting import Report
from pipeline.train.hardware import cores

GRAPH, CHECKED = "vectors.usearch", "checked.json"
FROM = 1_000_000
"""Number of vectors above which the setting `auto` searches with an index."""
CONNECTIVITY, EXPANSION_ADD, EXPANSION_SEARCH = 16, 128, 256
"""Neighbours of each vector in the graph, candidates while adding a vector, and candidates while searching."""
CANDIDATES_PER_TEXT = 4
"""Number of candidates per text to find. If a query needs more, the number grows by this factor each time."""
MOST_CANDIDATES = 4_096
"""Maximum number of candidates per query. More are needed if most candidates are chunks of a few long texts."""
Best = dict[int, tuple[int, float]]
"""Row of a text's first chunk -> row of its best chunk, and the score."""


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

    The index proposes candidates, which are ordered by their exact similarity. If the candidates of a query belong to
    fewer than `top` texts, the index proposes more of them. If MOST_CANDIDATES are not enough, the query is compared
    with all vectors.
    """
    compared = comparable(queries, vectors.model.similarity)
    graph, enough = _opened(vectors, report), min(top, vectors.texts)
    best: list[Best] = [{} for _ in compared]
    lacking, count = np.arange(len(compared)), top * CANDIDATES_PER_TEXT
    while len(lacking) and count <= max(MOST_CANDIDATES, top * CANDIDATES_PER_TEXT):
        for query, of_query in zip(lacking.tolist(), _best_of(graph, vectors, compared[lacking], count)):
            best[query] = of_query
        lacking = np.array([query for query in lacking.tolist() if len(best[query]) < enough], np.int64)
        count *= CANDIDATES_PER_TEXT
    if len(lacking):
        exact = exact_hits(vectors, queries[lacking], top)
        for query, rows, scores in zip(lacking.tolist(), exact.rows.tolist(), exact.scores.tolist()):
            best[query] = dict(enumerate(zip(rows, scores)))
    return sorted_hits([list(of_query.values()) for of_query in best], enough)


def _best_of(graph: Any, vectors: Vectors, queries: np.ndarray, count: int) -> list[Best]:
    """Return the best chunk of each text among `count` candidates of each query."""
    chosen = _candidates(graph, vectors, queries, count)
    rows = np.unique(np.concatenate([np.zeros(0, np.int64), *chosen]))
    ready, chunks = vectors.vectors_of(rows)
    ready, found = comparable(ready, vectors.model.similarity), []
    for number, of_query in enumerate(chosen):
        at = np.searchsorted(rows, np.sort(of_query))
        scores = exact_scores(queries, ready, np.full(len(at), number), at)
        best: Best = {}
        for row, chunk, score in zip(rows[at].tolist(), chunks[at].tolist(), scores.tolist()):
            if row - chunk not in best or score > best[row - chunk][1]:
                best[row - chunk] = (row, score)
        found.append(best)
    return found


def _candidates(graph: Any, vectors: Vectors, queries: np.ndarray, count: int) -> list[np.ndarray]:
    """Return up to `count` candidate rows of each query, int64."""
    count = min(count, vectors.count)
    graph.expansion_search = max(EXPANSION_SEARCH, count)
    found = graph.search(queries, count)
    keys = np.asarray(found.keys).reshape(len(queries), -1)
    counts = np.asarray(getattr(found, "counts", [keys.shape[1]] * len(queries)))
    return [of_query[:valid].astype(np.int64) for of_query, valid in zip(keys, counts)]


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
        if about is None or about.get("vectors") != vectors.fingerprint or not _is_sound(folder, about):
            if about is not None:
                other = about.get("vectors") != vectors.fingerprint
                reason = f"is an index of other vectors ({about.get('vectors')})" if other else "is damaged"
                report(f"{folder} {reason}: building the index again")
            _build(vectors, folder, report)
    return _usearch().restore(f"{folder}/{GRAPH}", view=True)


def _is_sound(folder: str, about: dict[str, Any]) -> bool:
    """Return whether the graph has the digest in its manifest `about`. A graph that is unchanged is not read again."""
    try:
        graph = (Path(folder) / GRAPH).stat()
    except OSError:
        return False
    stamp = {"bytes": graph.st_size, "modified": graph.st_mtime_ns, "files": about.get("files")}
    if storage.read_object(storage.join(folder, CHECKED)) == stamp:
        return True
    if storage.damage(folder):
        return False
    storage.write_json(storage.join(folder, CHECKED), stamp)
    return True


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
        graph.add(keys, comparable(block.vectors, vectors.model.similarity), threads=cores())
    with scratch_folder("index") as scratch:
        graph.save(str(Path(scratch) / GRAPH))
        storage.publish(Path(scratch), folder, {"vectors": vectors.fingerprint, "rows": vectors.count})
