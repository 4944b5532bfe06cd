"""Find the texts whose vectors are most similar to queries. The search is exact: a query is compared with all vectors.

Shapes: Q queries, N vectors, D numbers per vector, K texts to find. A text with several chunks gets the similarity of
its best chunk and occurs once in the results.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipeline.embed.vectors import VectorBlock, Vectors
from pipeline.errors import ConfigError

SIMILARITIES = ("cosine", "dot")
QUERIES_AT_ONCE = 512
"""Maximum queries that are compared with a block at a time, which limits the memory of their similarities."""
PAIRS_AT_ONCE = 8_192
"""Maximum pairs of a query and a vector whose exact scores are computed at a time."""
ROUNDING = 2e-6
"""Maximum error of a product in float32, as a share of the product of both lengths."""


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
    rerank_score: float | None = None
    """Score of the cross-encoder; None without one."""
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
    """Compare queries (Q, D) with all vectors, and return the most similar `top` texts of each query.

    Of texts with equal scores, the first in the order of the vectors comes first.
    """
    compared = comparable(queries, vectors.model.similarity)
    slices = [compared[first : first + QUERIES_AT_ONCE] for first in range(0, len(compared), QUERIES_AT_ONCE)]
    best = [_no_hits(len(some)) for some in slices]
    for block in vectors.blocks():
        ready = comparable(block.vectors, vectors.model.similarity)
        best = [_with_block(hits, block, ready, some, top) for hits, some in zip(best, slices, strict=True)]
    return Hits(
        rows=np.concatenate([hits.rows for hits in best]), scores=np.concatenate([hits.scores for hits in best])
    )


def _no_hits(queries: int) -> Hits:
    return Hits(rows=np.zeros((queries, 0), np.int64), scores=np.zeros((queries, 0), np.float32))


def _with_block(best: Hits, block: VectorBlock, ready: np.ndarray, queries: np.ndarray, top: int) -> Hits:
    """Return the best `top` hits of `best` and of a block; `ready`: the block's vectors, from `comparable`."""
    products = queries @ ready.T
    slack = ROUNDING * np.linalg.norm(queries, axis=1) * np.linalg.norm(ready, axis=1).max()
    query, row = np.nonzero(products >= (_floors(best, block, products, top) - slack)[:, None])
    scores = exact_scores(queries, ready, query, row)
    text = row - block.chunks[row]
    order = np.lexsort((row, -scores, text, query))  # the best chunk of each text first, and the first of equal ones
    first = order[np.flatnonzero(np.diff(query[order] * len(ready) + text[order], prepend=-1))]
    return _merged(best, query[first], block.first + row[first], scores[first], top)


def _floors(best: Hits, block: VectorBlock, products: np.ndarray, top: int) -> np.ndarray:
    """Return a score for each query that the best `top` texts reach, float32 (Q,)."""
    if best.rows.shape[1] == top:
        return best.scores[:, -1]
    of_texts = np.maximum.reduceat(products, np.flatnonzero(block.chunks == 0), axis=1)
    kept = min(top, of_texts.shape[1])
    return np.partition(of_texts, -kept, axis=1)[:, -kept]


def exact_scores(queries: np.ndarray, ready: np.ndarray, query: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return the products of pairs of a query and a row, float32 (pairs,), from their numbers `query` and `row`.

    Equal vectors have equal scores, because sums in float64 are rounded to float32. A matrix product in float32 may
    give them different scores, depending on their place in the matrix.
    """
    scores = np.empty(len(query), np.float32)
    for first in range(0, len(query), PAIRS_AT_ONCE):
        some = slice(first, first + PAIRS_AT_ONCE)
        left, right = queries[query[some]].astype(np.float64), ready[row[some]].astype(np.float64)
        scores[some] = np.einsum("pd,pd->p", left, right)
    return scores


def _merged(best: Hits, query: np.ndarray, rows: np.ndarray, scores: np.ndarray, top: int) -> Hits:
    """Return the best `top` hits of `best` and of others, given as flat arrays; rows decide between equal scores."""
    count, width = best.rows.shape
    query = np.concatenate([np.repeat(np.arange(count), width), query])
    rows, scores = np.concatenate([best.rows.ravel(), rows]), np.concatenate([best.scores.ravel(), scores])
    order = np.lexsort((rows, -scores, query))
    counts = np.bincount(query, minlength=count)
    kept = order[(np.cumsum(counts) - counts)[:, None] + np.arange(min(top, counts.min()))]
    return Hits(rows=rows[kept], scores=scores[kept])


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
