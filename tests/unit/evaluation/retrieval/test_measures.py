"""Measures of rankings, worked out by hand."""

import math

import numpy as np
import pytest

from pipeline.evaluation.retrieval.measures import MEASURES, measure
from pipeline.evaluation.retrieval.ranking import rank, rank_by_cosine, tie_ranks

IDS = ["d1", "d2", "d3", "d4", "d5"]


def test_each_measure_of_one_ranking() -> None:
    # d5 is relevant and not found; d1 is judged and not relevant; d3 has no judgement.
    measured = measure([np.array([0, 1, 2, 3])], IDS, [{"d1": 0, "d2": 2, "d4": 1, "d5": 3}])
    gain = 2 / math.log2(3) + 1 / math.log2(5)
    ideal = 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4)
    values = {name: value.tolist() for name, value in measured.items()}
    assert values == {
        "ndcg@10": [pytest.approx(gain / ideal)],
        "mrr@10": [1 / 2],
        "map": [pytest.approx((1 / 2 + 2 / 4) / 3)],
        "recall@100": [pytest.approx(2 / 3)],
    }


def test_a_relevant_document_at_rank_11_counts_for_map_and_recall_alone() -> None:
    ids = [f"d{number}" for number in range(120)]
    measured = measure([np.arange(120)], ids, [{"d10": 1}])
    assert [float(measured[name][0]) for name in MEASURES] == [0, 0, pytest.approx(1 / 11), 1]
    late = measure([np.arange(120)], ids, [{"d100": 1}])
    assert float(late["recall@100"][0]) == 0 and float(late["map"][0]) == pytest.approx(1 / 101)


def test_the_best_ranking_has_1_everywhere_and_an_empty_one_0() -> None:
    judged = {"d1": 1, "d2": 3, "d3": -1}
    best, empty = (measure([ranking], IDS, [judged]) for ranking in (np.array([1, 0]), np.array([], np.int64)))
    assert all(value == [1] for value in best.values()) and all(value == [0] for value in empty.values())


def test_a_negative_grade_takes_no_gain_away() -> None:
    measured = measure([np.array([0, 1])], IDS, [{"d1": -3, "d2": 1}])
    assert float(measured["ndcg@10"][0]) == pytest.approx(1 / math.log2(3))


def test_equal_scores_are_ordered_by_id_the_last_first() -> None:
    ties = tie_ranks(["b", "a", "c", "10", "9"])
    scores = np.array([1.0, 1.0, 1.0, 2.0, 2.0])
    assert rank(scores, ties).tolist() == [4, 3, 2, 0, 1]  # "9" before "10" as texts, then c, b, a


def test_a_depth_within_equal_scores_keeps_the_last_ids() -> None:
    ties = tie_ranks(["a", "b", "c", "d"])
    assert rank(np.array([1.0, 1.0, 1.0, 2.0]), ties, depth=2).tolist() == [3, 2]


def test_a_document_without_a_score_is_not_found() -> None:
    assert rank(np.array([-np.inf, 0.0, -1.0]), tie_ranks(["a", "b", "c"])).tolist() == [1, 2]


def test_queries_are_ranked_in_their_order_over_several_blocks() -> None:
    angles = np.linspace(0, 1, 100)
    vectors = np.stack((np.cos(angles), np.sin(angles)), axis=1).astype(np.float32)
    rankings = rank_by_cosine(vectors, vectors, tie_ranks([f"{number:03}" for number in range(100)]), [None] * 100)
    assert [ranking[0] for ranking in rankings] == list(range(100))
