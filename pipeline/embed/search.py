"""Find the texts whose vectors are most similar to queries. The search is exact: a query is compared with all vectors.

Shapes: Q queries, N vectors, D numbers per vector, K texts to find. A text with several chunks gets the similarity of
its best chunk and occurs once in the results.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipeline.embed.vectors import Block, Vectors
from pipeline.errors import ConfigError

SIMILARITIES = ("cosine", "dot")
QUERIES_AT_ONCE = 512
"""Maximum queries that are compared with a block at a time. This limits the memory for similarities."""


@dataclass(frozen=True, kw_only=True)
class Hits:
    """Rows found for Q queries, the most similar row first. If fewer than K texts exist, there are fewer columns."""

    rows: np.ndarray
    """int64 (Q, K)."""
    scores: np.ndarray
    """float32 (Q, K)."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A text that was found; for a text with several chunks, its best chunk."""

    id: str
    score: float
    chunk: int
    start: int
    end: int
    title: str | None
    text: str | None
    """Text of the chunk; None if texts are not stored with the vectors."""

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def require_similarity(similarity: str) -> None:
    """Raise ConfigError if search does not support a model's similarity."""
    if similarity not in SIMILARITIES:
        raise ConfigError(
            f"the model's similarity ({similarity}) is not supported: use vectors of a model with one of "
            f"{', '.join(SIMILARITIES)}"
        )


def comparable(vectors: np.ndarray, similarity: str) -> np.ndarray:
    """Return vectors (N, D) whose dot product is the similarity. For cosine, the vectors are scaled to length 1."""
    if similarity == "dot":
        return vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def exact_hits(vectors: Vectors, queries: np.ndarray, top: int) -> Hits:
    """Compare queries (Q, D) with all vectors, and return the `top` most similar texts for each query."""
    compared = comparable(queries, vectors.model.similarity)
    best = Hits(rows=np.zeros((len(queries), 0), np.int64), scores=np.zeros((len(queries), 0), np.float32))
    for block in vectors.blocks():
        ready = comparable(block.vectors, vectors.model.similarity)
        parts = [
            _hits_of_block(block, ready, compared[first : first + QUERIES_AT_ONCE], top)
            for first in range(0, len(compared), QUERIES_AT_ONCE)
        ]
        rows = np.concatenate([best.rows, np.concatenate([part.rows for part in parts])], axis=1)
        scores = np.concatenate([best.scores, np.concatenate([part.scores for part in parts])], axis=1)
        best = _sorted(rows, scores, top)
    return best


def _hits_of_block(block: Block, ready: np.ndarray, queries: np.ndarray, top: int) -> Hits:
    """Return the most similar texts of a block, unsorted. `ready` are the block's vectors from `comparable`."""
    scores = queries @ ready.T
    starts = np.flatnonzero(block.chunks == 0)
    of_texts = scores if len(starts) == len(block.chunks) else np.maximum.reduceat(scores, starts, axis=1)
    kept = min(top, len(starts))
    columns = np.argpartition(-of_texts, kept - 1, axis=1)[:, :kept]
    lowest = np.take_along_axis(of_texts, columns, axis=1).min(axis=1, keepdims=True)
    for query in np.flatnonzero((of_texts >= lowest).sum(axis=1) > kept):  # equal scores: the first rows are kept
        columns[query] = np.argsort(-of_texts[query], kind="stable")[:kept]
    rows = starts[columns]
    if len(starts) < len(block.chunks):
        ends = np.append(starts[1:], len(block.chunks))[columns]
        for query, hit in np.ndindex(rows.shape):
            rows[query, hit] += np.argmax(scores[query, rows[query, hit] : ends[query, hit]])
    return Hits(rows=block.first + rows, scores=np.take_along_axis(of_texts, columns, axis=1))


def _sorted(rows: np.ndarray, scores: np.ndarray, top: int) -> Hits:
    """Return the `top` best rows for each query, best first. Rows with equal scores are in row order."""
    order = np.lexsort((rows, -scores), axis=1)[:, :top]
    return Hits(rows=np.take_along_axis(rows, order, axis=1), scores=np.take_along_axis(scores, order, axis=1))


def found_of(vectors: Vectors, hits: Hits) -> list[list[Found]]:
    """Return the texts found for each query, with ids and titles."""
    rows = vectors.rows_of(hits.rows[hits.rows >= 0].reshape(-1).tolist())
    return [
        [_found(rows[row], score) for row, score in zip(of_query.tolist(), scores.tolist()) if row >= 0]
        for of_query, scores in zip(hits.rows, hits.scores)
    ]


def _found(row: dict[str, Any], score: float) -> Found:
    values = {name: row[name] for name in ("id", "chunk", "start", "end")}
    return Found(**values, score=score, title=row.get("title"), text=row.get("text"))


def sorted_hits(candidates: Sequence[Sequence[tuple[int, float]]], top: int) -> Hits:
    """Return candidates (row, score) of each query as hits, best first. Missing hits have the row -1."""
    rows = np.full((len(candidates), top), -1, np.int64)
    scores = np.full((len(candidates), top), -np.inf, np.float32)
    for query, of_query in enumerate(candidates):
        for hit, (row, score) in enumerate(sorted(of_query, key=lambda one: (-one[1], one[0]))[:top]):
            rows[query, hit], scores[query, hit] = row, score
    return Hits(rows=rows, scores=scores)
