"""Metrics of the ranking of each query's candidates: MAP, MRR and nDCG@10.

As is usual for WikiQA and TREC QA ("clean" sets, Rao et al. 2016; Garg et al. 2020), a query counts only if it has a
relevant and an irrelevant candidate. Among candidates with equal scores the less relevant ones come first, so that a
model that gives the same score to all gains nothing from the order of a file (trec_eval orders them by their names
instead).
"""

from collections.abc import Callable, Iterator

import numpy as np

CUTOFF = 10


def _average_precision(ranked: np.ndarray) -> float:
    """Return the mean precision at the ranks of the relevant candidates."""
    relevant = ranked > 0
    return float((np.cumsum(relevant) / np.arange(1, len(relevant) + 1))[relevant].mean())


def _reciprocal_rank(ranked: np.ndarray) -> float:
    """Return 1 / (rank of the first relevant candidate)."""
    return 1 / (1 + int((ranked > 0).argmax()))


def _normalised_gain(ranked: np.ndarray) -> float:
    """Return the discounted cumulative gain of the first CUTOFF candidates, divided by that of the best ranking.

    A candidate with the label g at rank r adds g / log2(r + 1) (Järvelin and Kekäläinen 2002; trec_eval's ndcg_cut).
    """
    return _gain(ranked) / _gain(np.sort(ranked)[::-1])


def _gain(ranked: np.ndarray) -> float:
    """Return the discounted cumulative gain of the first CUTOFF candidates."""
    gains = np.maximum(ranked[:CUTOFF], 0)
    return float((gains / np.log2(np.arange(len(gains)) + 2)).sum())


RANKINGS: dict[str, Callable[[np.ndarray], float]] = {
    "map": _average_precision,
    "mrr": _reciprocal_rank,
    f"ndcg@{CUTOFF}": _normalised_gain,
}
"""Metric -> its value for one query, from the labels of its candidates, best candidate first."""


def mean_over_queries(name: str, scores: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> float:
    """Return the mean of a metric over the queries that count; 0 if none counts, or if a score is not finite.

    `scores` are float (N,); `labels` (N,) are above 0 for relevant candidates; `queries`, int (N,), are the numbers of
    the candidates' queries.
    """
    if not np.isfinite(scores).all():
        return 0.0
    values = [RANKINGS[name](ranked) for ranked in _ranked(scores, labels, queries)]
    return float(np.mean(values)) if values else 0.0


def counting(labels: np.ndarray, queries: np.ndarray) -> int:
    """Return the number of queries that count; arguments as in `mean_over_queries`."""
    return sum(1 for _ in _ranked(np.zeros(len(labels)), labels, queries))


def _ranked(scores: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> Iterator[np.ndarray]:
    """Yield for each query that counts the labels of its candidates, best candidate first."""
    order = np.lexsort((labels, -scores, queries))
    for ranked in np.split(labels[order], np.flatnonzero(np.diff(queries[order])) + 1):
        if 0 < np.count_nonzero(ranked > 0) < len(ranked):
            yield ranked
