"""Rank documents by their scores for a query, with the order of trec_eval for equal scores.

Shapes: Q queries, D documents.
"""

from collections.abc import Sequence

import numpy as np

DEPTH = 1_000
"""Maximum number of documents in a ranking, as in TREC's runs. The rest of the collection counts as not found."""
QUERIES_AT_ONCE = 64
"""Queries whose scores for all documents are in memory at the same time."""


def tie_ranks(ids: Sequence[str]) -> np.ndarray:
    """Return each document's rank among documents of the same score, int64 (D,): the last id in string order first.

    trec_eval breaks ties in the same way, so the order of lines in a run's file does not change the run's measures. Ids
    are compared by their UTF-8 bytes.
    """
    order = sorted(range(len(ids)), key=lambda index: ids[index].encode(), reverse=True)
    ranks = np.empty(len(ids), np.int64)
    ranks[order] = np.arange(len(ids))
    return ranks


def rank(scores: np.ndarray, ties: np.ndarray, depth: int = DEPTH, without: int | None = None) -> np.ndarray:
    """Return the indices of the best documents, best first, int64 (at most `depth`,).

    `scores` (D,) are a query's scores; a document with the score -inf is not found, nor is that of index `without`.
    `ties` is from `tie_ranks`.
    """
    found = np.flatnonzero(scores > -np.inf)
    found = found if without is None else found[found != without]
    if len(found) > depth:
        lowest = np.partition(scores[found], len(found) - depth)[len(found) - depth]
        found = found[scores[found] >= lowest]  # may be more than `depth` if several documents have the lowest score
    return found[np.lexsort((ties[found], -scores[found]))][:depth]


def rank_by_cosine(
    queries: np.ndarray, documents: np.ndarray, ties: np.ndarray, without: Sequence[int | None]
) -> list[np.ndarray]:
    """Return the ranking of each query by cosine; `queries` (Q, width) and `documents` (D, width) have length 1.

    `without` has for each query the index of a document that is left out, or None.
    """
    scores = (
        of_query
        for start in range(0, len(queries), QUERIES_AT_ONCE)
        for of_query in queries[start : start + QUERIES_AT_ONCE] @ documents.T
    )
    return [rank(of_query, ties, without=index) for of_query, index in zip(scores, without, strict=True)]
