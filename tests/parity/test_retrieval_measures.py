"""Measures of rankings against ir_measures, which calls trec_eval: same values, also with ties and negative grades."""

import ir_measures
import numpy as np
import pytest
from ir_measures import AP, RR, R, nDCG

from pipeline.evaluation.retrieval.measures import MEASURES, OF_PAIRS, measure
from pipeline.evaluation.retrieval.ranking import rank, tie_ranks

DOCUMENTS, QUERIES = 150, 20


def test_measures_equal_trec_eval_s() -> None:
    draw = np.random.Generator(np.random.Philox(3))
    ids = [f"d{number}" for number in range(DOCUMENTS)]
    scores = draw.integers(0, 12, (QUERIES, DOCUMENTS)) / 4  # about 12 documents for each score
    grades = [
        {ids[index]: int(draw.integers(-1, 4)) for index in draw.choice(DOCUMENTS, 30, replace=False)}
        for _ in range(QUERIES)
    ]
    ours = measure([rank(row, tie_ranks(ids)) for row in scores], ids, grades, MEASURES | OF_PAIRS)
    theirs = dict(zip(ours, (nDCG @ 10, RR, AP, R @ 100, R @ 10)))  # RR@10 of ir_measures orders ties otherwise
    qrels = [
        ir_measures.Qrel(str(query), id, grade) for query, judged in enumerate(grades) for id, grade in judged.items()
    ]
    run = [
        ir_measures.ScoredDoc(str(query), id, float(score))
        for query, row in enumerate(scores)
        for id, score in zip(ids, row)
    ]
    expected = {
        (str(value.measure), value.query_id): value.value
        for value in ir_measures.iter_calc(list(theirs.values()), qrels, run)
    }
    for name, values in ours.items():
        of_queries = [expected[str(theirs[name]), str(query)] for query in range(QUERIES)]
        if name == "mrr@10":
            of_queries = [value if value >= 1 / 10 else 0.0 for value in of_queries]
        assert values.tolist() == pytest.approx(of_queries, abs=1e-12), name
