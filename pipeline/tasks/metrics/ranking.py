"""Measures of rankings, as trec_eval computes them, and their mean over queries with candidates of their own.

Of a query, `ranked` are the grades of its ranking, best first, and `judged` those of all its judged documents. A
document is relevant if its grade is above 0; one without a judgement has grade 0. Each measure is a share of 1.
"""

from collections.abc import Callable, Iterator

import numpy as np

CUTOFF = 10
Measure = Callable[[np.ndarray, np.ndarray], float]
"""Measure of one query: (ranked, judged) -> value."""


def normalised_gain(ranked: np.ndarray, judged: np.ndarray) -> float:
    """Return nDCG@10: the discounted cumulative gain (DCG@10), divided by that of the best possible ranking.

    A document of grade g at rank r adds g / log2(r + 1) (Järvelin and Kekäläinen 2002; trec_eval's ndcg_cut). A grade
    below 0 counts as 0.
    """
    return _gain(ranked) / _gain(np.sort(judged)[::-1])


def _gain(grades: np.ndarray) -> float:
    """Return the discounted cumulative gain of the first CUTOFF documents."""
    gains = np.maximum(grades[:CUTOFF], 0)
    return float((gains / np.log2(np.arange(len(gains)) + 2)).sum())


def reciprocal_rank(ranked: np.ndarray, judged: np.ndarray, cutoff: int | None = None) -> float:
    """Return 1 / rank of the first relevant document; 0 if there is none among the first `cutoff`."""
    hits = np.flatnonzero(ranked[:cutoff] > 0)
    return 1 / (int(hits[0]) + 1) if len(hits) else 0.0


def average_precision(ranked: np.ndarray, judged: np.ndarray) -> float:
    """Return the sum of the precision at each relevant document's rank, divided by the number of relevant documents."""
    ranks = np.flatnonzero(ranked > 0) + 1
    return float((np.arange(1, len(ranks) + 1) / ranks).sum() / np.count_nonzero(judged > 0))


def recall(ranked: np.ndarray, judged: np.ndarray, cutoff: int) -> float:
    """Return the share of the relevant documents that are among the first `cutoff`."""
    return float(np.count_nonzero(ranked[:cutoff] > 0) / np.count_nonzero(judged > 0))


RANKINGS: dict[str, Measure] = {
    "map": average_precision,
    "mrr": reciprocal_rank,
    f"ndcg@{CUTOFF}": normalised_gain,
}
"""Measures of a task whose queries have candidates of their own."""


def mean_over_queries(name: str, scores: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> float:
    """Return the mean of a measure over the queries that count; 0 if none counts, or if a score is not finite.

    As is usual for WikiQA and TREC QA ("clean" sets, Rao et al. 2016; Garg et al. 2020), a query counts only if it has
    a relevant and an irrelevant candidate. Among candidates with equal scores the less relevant ones come first, so
    that a model that gives the same score to all gains nothing from the order of a file (trec_eval orders them by their
    names instead).

    `scores` are float (N,); `labels` (N,) are above 0 for relevant candidates; `queries`, int (N,), are the numbers of
    the candidates' queries.
    """
    if not np.isfinite(scores).all():
        return 0.0
    values = [RANKINGS[name](ranked, ranked) for ranked in _ranked(scores, labels, queries)]
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
