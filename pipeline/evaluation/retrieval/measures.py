"""Measures of rankings of documents: nDCG@10, MRR@10, MAP and recall@100."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from pipeline.tasks.metrics.ranking import (
    CUTOFF,
    Measure,
    average_precision,
    normalised_gain,
    recall,
    reciprocal_rank,
)

RECALL_CUTOFF = 100
MEASURES: dict[str, Measure] = {
    f"ndcg@{CUTOFF}": normalised_gain,
    f"mrr@{CUTOFF}": partial(reciprocal_rank, cutoff=CUTOFF),
    "map": average_precision,
    f"recall@{RECALL_CUTOFF}": partial(recall, cutoff=RECALL_CUTOFF),
}
OF_PAIRS: dict[str, Measure] = {
    f"ndcg@{CUTOFF}": normalised_gain,
    f"recall@{CUTOFF}": partial(recall, cutoff=CUTOFF),
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
