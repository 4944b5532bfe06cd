"""Differences of two runs, read from the figure."""

import numpy as np
import pytest

from pipeline.errors import ConfigError
from pipeline.pictures.run_difference import PROMISED, ROWS, draw, lines, run_difference

ONE = {
    "train/mlm_loss": {1: 9.0, 2: 8.0, 3: 7.0, 4: 6.5},
    "train/nsp_loss": {1: 0.7, 2: 0.6, 3: 0.5, 4: 0.5},
    ROWS: {1: 11.0, 2: 22.0, 3: 33.0, 4: 44.0},
}
OTHER = {
    "train/mlm_loss": {2: 8.0, 3: 7.000001, 1: 9.0},
    "train/nsp_loss": {1: 0.7, 2: 0.5, 3: 0.5},
    ROWS: {1: 11.0, 2: 22.0, 3: 34.0},
}
NAMES = ("undisturbed", "killed")


def test_both_runs_and_their_difference_are_drawn() -> None:
    mlm, mlm_difference, nsp, nsp_difference = draw(run_difference(ONE, OTHER, NAMES), NAMES).axes
    for axes, term in ((mlm, "mlm"), (nsp, "nsp")):
        drawn = {line.get_label(): dict(zip(line.get_xdata(), line.get_ydata())) for line in axes.get_lines()}
        common = {step: ONE[f"train/{term}_loss"][step] for step in (1, 2, 3)}
        assert drawn == {"undisturbed": common, "killed": OTHER[f"train/{term}_loss"]}
    assert list(mlm_difference.get_lines()[1].get_ydata()) == pytest.approx([0, 0, 1e-6])
    assert list(nsp_difference.get_lines()[1].get_ydata()) == pytest.approx([0, -0.1, 0])
    assert mlm_difference.get_ylim() == (-PROMISED, PROMISED)  # so that rounding does not fill the panel
    assert nsp_difference.get_ylim() == pytest.approx((-0.115, 0.115))
    assert mlm_difference.get_title("right") == "largest difference: 1.0e-06 nats"


def test_what_differs_is_told() -> None:
    assert lines(run_difference(ONE, OTHER, NAMES), NAMES) == [
        "killed against undisturbed: 3 logged steps in common, up to step 3",
        "MLM loss: equal up to rounding; largest difference 1.0e-06 nats, at step 3",
        "NSP loss: different; largest difference 1.0e-01 nats, at step 2",
        "the same rows up to 2 of 3 steps",
        "1 steps were logged by undisturbed only",
    ]
    assert lines(run_difference(ONE, ONE, NAMES), NAMES)[1] == "MLM loss: equal; largest difference 0.0e+00 nats"


def test_runs_without_a_common_step_are_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^runs undisturbed and killed logged no loss at the same step: compare"):
        run_difference(ONE, {"train/mlm_loss": {7: 1.0}}, NAMES)
    assert np.isfinite(run_difference(ONE, ONE, NAMES).terms[0].losses).all()
