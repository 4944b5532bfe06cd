"""Accuracies and their intervals, by hand."""

import math

import numpy as np
import pytest

from pipeline.evaluation.minimal_pairs.paradigms import Paradigm
from pipeline.evaluation.minimal_pairs.results import (
    mean_accuracies,
    mean_and_half_width,
    pair_scores,
    score_paradigms,
    table,
)


def test_ties_count_a_half_also_after_rounding() -> None:
    good = np.array([-1.0, -3.0, -2.0, -2.0])
    bad = np.array([-2.0, -1.0, -2.0, -2.0 - 1e-9])
    assert pair_scores(good, bad).tolist() == [1, 0, 0.5, 0.5]


def test_the_mean_is_over_paradigms_and_the_interval_over_pairs() -> None:
    scores = [np.array([1.0, 1, 0, 1]), np.array([0.0, 1])]
    mean, half = mean_and_half_width(scores)
    assert mean == pytest.approx((0.75 + 0.5) / 2)
    # variances 0.25 of 4 pairs and 0.5 of 2
    assert half == pytest.approx(1.96 * math.sqrt(0.25 / 4 + 0.5 / 2) / 2)


def test_the_table_has_everything_then_phenomena_then_their_paradigms() -> None:
    paradigms = [
        Paradigm(name="x", phenomenon="islands", good=("a", "b"), bad=("c", "d")),
        Paradigm(name="y", phenomenon="binding", good=("a", "a"), bad=("d", "d")),
    ]
    nats = {"PLL": np.array([-1.0, -5.0, -2.0, -4.0]), "unigram": np.full(4, -1.0)}
    scores = score_paradigms(paradigms, ["a", "b", "c", "d"], nats)
    assert mean_accuracies(scores) == {"PLL": 0.75, "unigram": 0.5}
    assert scores["PLL"]["x"].tolist() == [1, 0] and scores["unigram"]["y"].tolist() == [0.5, 0.5]
    assert [line.split() for line in table(paradigms, scores)] == [
        ["accuracy,", "%", "pairs", "PLL", "unigram"],
        ["all", "paradigms", "4", "75.0", "±49.0", "50.0", "±0.0"],
        ["binding", "2", "100.0", "±0.0", "50.0", "±0.0"],
        ["y", "2", "100.0", "±0.0", "50.0", "±0.0"],
        ["islands", "2", "50.0", "±98.0", "50.0", "±0.0"],
        ["x", "2", "50.0", "±98.0", "50.0", "±0.0"],
    ]


def test_paradigms_without_a_phenomenon_have_no_line_for_it() -> None:
    paradigms = [Paradigm(name=name, phenomenon="", good=("a", "a"), bad=("b", "b")) for name in "xy"]
    scores = score_paradigms(paradigms, ["a", "b"], {"PLL": np.array([-1.0, -2])})
    assert [line.split()[0] for line in table(paradigms, scores)] == ["accuracy,", "all", "x", "y"]
