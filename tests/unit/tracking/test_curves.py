"""The numbers that pictures show: read from their axes."""

import math

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.tracking.curves import (
    LEARNING_CURVE,
    MOST_POINTS,
    THROUGHPUT,
    interval_means,
    learning_curve,
    pictures,
    throughput,
)

POINTS = {
    "train/mlm_loss": {10: 7.0, 30: 5.0, 20: 6.0},
    "train/nsp_loss": {10: 0.75, 20: 0.5, 30: 0.25},
    "heldout/mlm_loss": {0: 8.0, 15: 6.5, 30: 5.5},
    "heldout/nsp_loss": {0: 0.7, 15: 0.6, 30: 0.5},
    "heldout/maximum_length": {0: 128.0, 15: 128.0, 30: 128.0},
    "heldout_baseline/unigram_mlm_loss": {0: 6.25, 30: 6.25},
    "heldout_baseline/majority_nsp_accuracy": {0: 0.5, 30: 0.5},
    "speed/tokens_per_second": {10: 900.0, 20: 1100.0, 30: 1000.0},
    "speed/data_wait_percent": {10: 40.0, 20: 0.5, 30: 0.25},
    "stream/tokens": {10: 1000.0, 20: 2500.0, 30: 4000.0},
}


def lines(axes: Axes) -> dict[str, tuple[list[float], list[float]]]:
    """Label -> x and y of each line."""
    return {str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}


def drawn(figure: Figure | None) -> Figure:
    """The figure, laid out as it is when it is written."""
    assert figure is not None
    figure.draw_without_rendering()
    return figure


def test_the_learning_curve_shows_what_was_logged() -> None:
    figure = drawn(learning_curve("a-run", POINTS))
    mlm, nsp = figure.axes
    assert figure.get_suptitle() == "a-run"
    assert lines(mlm) == {
        "training, mean of 10 steps": ([10, 20, 30], [7, 6, 5]),
        "held-out": ([0, 15, 30], [8, 6.5, 5.5]),
        "before training: 8.000": ([0, 1], [8, 8]),  # from one side of the panel to the other
        "unigram baseline: 6.250": ([0, 1], [6.25, 6.25]),
    }
    assert lines(nsp) == {
        "training, mean of 10 steps": ([10, 20, 30], [0.75, 0.5, 0.25]),
        "held-out": ([0, 15, 30], [0.7, 0.6, 0.5]),
        "before training: 0.700": ([0, 1], [0.7, 0.7]),
        "guess by frequency: 0.693": ([0, 1], [math.log(2), math.log(2)]),
    }
    assert (mlm.get_ylabel(), nsp.get_ylabel(), nsp.get_xlabel()) == (
        "MLM loss, nats per masked token",
        "NSP loss, nats per pair",
        "step",
    )
    (tokens,) = mlm.child_axes
    assert tokens.get_xlabel() == "tokens"
    assert tokens._functions[0](np.array([0, 10, 15, 30])).tolist() == [0, 1000, 1750, 4000]


def test_a_distillation_has_panels_for_soft_targets_and_cosine_without_a_baseline() -> None:
    points = {
        "train/mlm_loss": {5: 6.0, 10: 5.0},
        "train/soft_loss": {5: 3.0, 10: 2.5},
        "train/cosine_loss": {5: 0.9, 10: 0.5},
        "heldout/cosine_loss": {0: 1.0, 10: 0.4},
    }
    masked, soft, cosine = drawn(learning_curve("distilled", points)).axes
    assert lines(soft) == {"training": ([5.0, 10.0], [3.0, 2.5])} or "training, mean of 5 steps" in lines(soft)
    assert soft.get_ylabel() == "soft-target loss, nats per token"
    assert cosine.get_ylabel() == "1 - cosine, mean per token"
    assert "before training: 1.000" in lines(cosine)


def test_throughput_shows_what_was_logged() -> None:
    figure = drawn(throughput("a-run", POINTS))
    speed, wait = figure.axes
    assert lines(speed) == {"training, mean of 10 steps": ([10, 20, 30], [900, 1100, 1000])}
    assert lines(wait) == {"training, mean of 10 steps": ([10, 20, 30], [40, 0.5, 0.25])}
    assert (speed.get_ylabel(), wait.get_ylabel(), wait.get_xlabel()) == (
        "tokens per second",
        "time waiting for data, percent",
        "step",
    )
    assert speed.get_ylim()[0] == wait.get_ylim()[0] == 0 and wait.get_ylim()[1] >= 40


def test_what_was_not_logged_is_not_drawn() -> None:
    assert pictures("a-run", {}) == {} == pictures("a-run", {"heldout/mlm_loss": {0: 8.0}})
    assert pictures("a-run", POINTS).keys() == {LEARNING_CURVE, THROUGHPUT}
    alone = drawn(learning_curve("a-run", {"train/mlm_loss": {50: 7.0}}))
    assert [lines(axes) for axes in alone.axes] == [{"training": ([50], [7.0])}]
    uneven = drawn(learning_curve("a-run", {"train/mlm_loss": {10: 7.0, 20: 6.0, 25: 5.0}}))
    assert lines(uneven.axes[0]).keys() == {"training, mean of 10 steps"}
    gone_on = drawn(learning_curve("a-run", {"train/mlm_loss": {61: 5.0, 62: 4.0}, "heldout/mlm_loss": {62: 4.5}}))
    assert lines(gone_on.axes[0]) == {"training, each step": ([61, 62], [5, 4]), "held-out": ([62], [4.5])}


def test_held_out_losses_at_five_lengths_are_five_lines() -> None:
    lengths = {0: 128.0, 10: 256.0, 20: 512.0, 30: 1024.0, 40: 2048.0}
    points = {"heldout/mlm_loss": dict.fromkeys(lengths, 5.0), "heldout/maximum_length": lengths}
    shown = lines(drawn(learning_curve("a-run", points | {"train/mlm_loss": {10: 7.0}})).axes[0])
    assert {f"held-out, length {length:.0f}" for length in lengths.values()} <= shown.keys()


def test_held_out_losses_at_two_lengths_are_two_lines() -> None:
    points = POINTS | {
        "heldout/mlm_loss": {0: 8.0, 15: 6.5, 20: 6.0, 30: 5.5},
        "heldout/maximum_length": {0: 16.0, 15: 16.0, 20: 32.0, 30: 32.0},
    }
    points |= {"heldout_baseline/unigram_mlm_loss": {0: 6.25, 15: 6.5, 30: 6.5}}
    shown = lines(drawn(learning_curve("a-run", points)).axes[0])
    assert shown["held-out, length 16"] == ([0, 15], [8, 6.5]) and shown["held-out, length 32"] == ([20, 30], [6, 5.5])
    assert "unigram baseline: 6.500" in shown  # of the length that it has now


@pytest.mark.parametrize("number", [1, MOST_POINTS, MOST_POINTS + 1, 10 * MOST_POINTS + 3])
def test_long_runs_are_drawn_by_means_that_miss_no_point(number: int) -> None:
    logged = {10 * (index + 1): float(index) for index in range(number)}
    steps, values, size = interval_means(logged)
    assert len(steps) <= MOST_POINTS and steps[-1] == 10 * number
    sizes = np.diff(steps, prepend=0) / 10
    assert set(sizes[:-1]) <= {size} and (values * sizes).sum() == pytest.approx(sum(logged.values()))
    assert values[0] == (size - 1) / 2


def test_a_long_name_is_broken_into_lines() -> None:
    assert max(map(len, drawn(learning_curve("x" * 200, POINTS)).get_suptitle().splitlines())) == 80
