"""Measures of rankings: nDCG@10, MRR@10, MAP and recall@100, each a share of 1, as trec_eval computes them.

A document is relevant if its grade is above 0. `ranked` are the grades of a query's ranking, best document first; a
document without a judgement has grade 0. `judged` are the grades of all judged documents of the query.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

CUTOFF = 10
RECALL_CUTOFF = 100


def _ndcg(ranked: np.ndarray, judged: np.ndarray) -> float:
    """Return DCG@10 divided by the DCG@10 of the best possible ranking.

    A document of grade g at rank r adds g / log2(r + 1). A grade below 0 counts as 0. Source: Järvelin and Kekäläinen
    2002; trec_eval's ndcg_cut.
    """
    return _dcg(ranked) / _dcg(np.sort(judged)[::-1])


def _dcg(grades: np.ndarray) -> float:
    """Return the discounted cumulative gain of the first CUTOFF documents."""
    gains = np.maximum(grades[:CUTOFF], 0)
    return float((gains / np.log2(np.arange(len(gains)) + 2)).sum())


def _reciprocal_rank(ranked: np.ndarray, judged: np.ndarray) -> float:
    """Return 1 / rank of the first relevant document; 0 if the first 10 documents have none."""
    hits = np.flatnonzero(ranked[:CUTOFF] > 0)
    return 1 / (int(hits[0]) + 1) if len(hits) else 0.0


def _average_precision(ranked: np.ndarray, judged: np.ndarray) -> float:
    """Return the sum of the precision at each relevant document's rank, divided by the number of relevant documents."""
    ranks = np.flatnonzero(ranked > 0) + 1
    return float((np.arange(1, len(ranks) + 1) / ranks).sum() / np.count_nonzero(judged > 0))


def _recall(ranked: np.ndarray, judged: np.ndarray, cutoff: int = RECALL_CUTOFF) -> float:
    """Return the share of the relevant documents that are among the first `cutoff`."""
    return float(np.count_nonzero(ranked[:cutoff] > 0) / np.count_nonzero(judged > 0))


Measure = Callable[[np.ndarray, np.ndarray], float]
MEASURES: dict[str, Measure] = {
    f"ndcg@{CUTOFF}": _ndcg,
    f"mrr@{CUTOFF}": _reciprocal_rank,
    "map": _average_precision,
    f"recall@{RECALL_CUTOFF}": _recall,
}
OF_PAIRS: dict[str, Measure] = {
    f"ndcg@{CUTOFF}": _ndcg,
    f"recall@{CUTOFF}": partial(_recall, cutoff=CUTOFF),
}
"""Measures for queries with one relevant document each."""


def measure(
    rankings: Sequence[np.ndarray],
    ids: Sequence[str],
    grades: Sequence[Mapping[str, int]],
    measures: Mapping[str, Measure] = MappingProxyType(MEASURES),
) -> dict[str, np.ndarray]:
    """Return {measure: value of each query, float64 (queries,)}.

    `rankings` are indices of `ids`, the documents' ids, best first. `grades` is {document id: grade} of each query,
    with at least one grade above 0.
    """
    ranked = [np.array([judged.get(ids[index], 0) for index in best]) for best, judged in zip(rankings, grades)]
    all_judged = [np.array(list(judged.values())) for judged in grades]
    return {
        name: np.array([value(*query) for query in zip(ranked, all_judged, strict=True)])
        for name, value in measures.items()
    }
