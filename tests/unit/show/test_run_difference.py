"""Differences of two runs, read from the figure."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.jobs import Pretrain
from pipeline.config.training import Checkpoints
from pipeline.errors import ConfigError
from pipeline.show.run_difference import PROMISED, ROWS, draw, lines, run_difference
from tests.conftest import Training

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
    named = draw(run_difference(ONE, OTHER, ("_base", "b")), ("_base", "b")).axes[0].get_legend()
    assert named and [text.get_text() for text in named.get_texts()] == ["_base", "b"]
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


def points_of(logged: dict[int, dict[str, float]]) -> dict[str, dict[int, float]]:
    names = {name for metrics in logged.values() for name in metrics}
    return {name: {step: metrics[name] for step, metrics in logged.items() if name in metrics} for name in names}


def test_a_killed_and_resumed_training_has_the_rows_and_losses_of_an_undisturbed_one(
    training: Training, tiny_config: Pretrain, tmp_path: Path
) -> None:
    config = replace(tiny_config, checkpoint=Checkpoints(every=5))
    whole: dict[int, dict[str, float]] = {}
    before: dict[int, dict[str, float]] = {}
    after: dict[int, dict[str, float]] = {}
    training.run(config, tmp_path / "whole", whole)
    with pytest.raises(KeyboardInterrupt):
        training.run(config, tmp_path / "killed", before, stop_at=9)
    training.run(config, tmp_path / "killed", after)
    assert max(before) == 8 and min(after) <= 6
    measured = run_difference(points_of(whole), points_of(before | after), NAMES)
    assert lines(measured, NAMES) == [
        "killed against undisturbed: 12 logged steps in common, up to step 12",
        "MLM loss: equal; largest difference 0.0e+00 nats",
        "NSP loss: equal; largest difference 0.0e+00 nats",
        "the same rows up to 12 of 12 steps",
    ]
    drawn = draw(measured, NAMES).axes[1].get_lines()[1]
    assert list(drawn.get_xdata()) == list(range(1, 13)) and not np.any(drawn.get_ydata())
