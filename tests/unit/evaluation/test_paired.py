"""Paired differences and their intervals, by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.evaluation.paired import Difference, format_difference, over_rows, over_seeds, p_value, verdict

SCORES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8)


def test_an_interval_over_seeds_by_hand() -> None:
    # differences 1, 2, 3: mean 2, deviation 1; Student's 0.975 quantile with 2 degrees of freedom is 4.30265
    found = over_seeds([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    assert found.mean == 2.0
    assert (found.low, found.high) == pytest.approx((2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), abs=1e-5)
    assert found.better == 0


def test_the_interval_is_that_of_the_paired_test() -> None:
    a, b = np.random.default_rng(3).normal(size=(2, 6))
    wanted = stats.ttest_rel(b, a).confidence_interval(0.95)
    found = over_seeds(a.tolist(), b.tolist())
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))


@given(SCORES)
def test_interval_is_shift_invariant_and_antisymmetric(
    pairs: list[tuple[float, float]],
) -> None:
    a, b = zip(*pairs)
    found, other = over_seeds(a, b), over_seeds(b, a)
    assert (found.mean, found.low, found.high) == pytest.approx((-other.mean, -other.high, -other.low))
    moved = over_seeds([value + 5 for value in a], [value + 5 for value in b])
    assert (found.low, found.high) == pytest.approx((moved.low, moved.high), abs=1e-9)


def test_one_seed_says_nothing_and_unequal_numbers_are_refused() -> None:
    assert over_seeds([0.5], [0.9]) == Difference(mean=pytest.approx(0.4), low=-math.inf, high=math.inf)
    with pytest.raises(ValueError, match=r"A has 1 seeds and B has 2: give both the same number of seeds, 1 or more"):
        over_seeds([1.0], [1.0, 2.0])


def test_differences_that_are_equal_up_to_rounding_say_nothing() -> None:
    before, after = [31 / 71, 40 / 71, 35 / 71], [34 / 71, 43 / 71, 38 / 71]
    found = over_seeds(before, after)
    assert found.low < found.high and (found.better, p_value(before, after)) == (0, None)
    assert "its spread is unknown" in verdict("wnli", found)


def test_rows_are_drawn_the_same_for_both() -> None:
    a = np.random.default_rng(1).random(200)
    b = a + 0.25
    found = over_rows(lambda places: float(a[places].mean()), lambda places: float(b[places].mean()), 200)
    assert (found.mean, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))


def test_the_interval_over_rows_by_hand() -> None:
    draws = np.random.Generator(np.random.Philox(5))
    values = np.random.default_rng(4).normal(size=(2, 30))
    means = [np.diff(values[:, draws.integers(30, size=30)].mean(1))[0] for _ in range(1_000)]
    found = over_rows(
        lambda rows: float(values[0][rows].mean()), lambda rows: float(values[1][rows].mean()), 30, seed=5
    )
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=1e-15)
    assert over_rows(lambda rows: 1.0, lambda rows: 3.0, 1) == Difference(mean=2.0, low=2.0, high=2.0)


def test_the_bootstrap_of_a_mean_is_about_as_wide_as_the_normal_interval() -> None:
    values = np.random.default_rng(2).normal(size=400)
    found = over_rows(lambda places: 0.0, lambda places: float(values[places].mean()), 400)
    half = 1.96 * values.std() / 20
    assert found.mean == pytest.approx(values.mean())
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.15)
    assert found == over_rows(lambda places: 0.0, lambda places: float(values[places].mean()), 400)


@pytest.mark.parametrize(
    ("found", "options", "words"),
    [
        (Difference(mean=0.021, low=0.004, high=0.038), {}, "B is better on mrpc: +2.1 (0.4 to 3.8)"),
        (Difference(mean=-0.021, low=-0.038, high=-0.004), {}, "A is better on mrpc: -2.1 (-3.8 to -0.4)"),
        (
            Difference(mean=0.003, low=-0.012, high=0.018),
            {},
            "no significant difference on mrpc: +0.3 (-1.2 to 1.8); more seeds may show one",
        ),
        (
            Difference(mean=0.0, low=0.0, high=0.0),
            {},
            "no significant difference on mrpc: A and B score the same with every seed",
        ),
        (
            Difference(mean=0.1, low=-math.inf, high=math.inf),
            {},
            "no significant difference on mrpc: the spread of one seed is unknown; give --seeds 2 or more",
        ),
        (
            Difference(mean=0.111, low=0.111, high=0.111),
            {},
            "no significant difference on mrpc: the difference is +11.1 with every seed, so its spread is unknown; "
            "give more seeds or development rows",
        ),
        (
            Difference(mean=-0.2, low=-0.3, high=-0.1),
            {"percent": False, "lower_is_better": True},
            "B is better on mrpc: -0.200 (-0.300 to -0.100)",
        ),
    ],
)
def test_the_words(found: Difference, options: dict[str, bool], words: str) -> None:
    assert verdict("mrpc", found, **options) == words


def test_figures_are_points_of_percent_or_the_metrics_unit() -> None:
    found = Difference(mean=0.0123, low=-0.1, high=0.1246)
    assert format_difference(found, True) == "+1.2 (-10.0 to 12.5)"
    assert format_difference(found, False) == "+0.012 (-0.100 to 0.125)"
