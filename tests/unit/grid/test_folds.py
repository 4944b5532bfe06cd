"""A grid over folds: planned, selected, reported and gone on with, its trials trained in this process."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune, GridSearch
from pipeline.config.model import Model
from pipeline.config.placement import TrialPlacement
from pipeline.config.recipe import Recipe
from pipeline.finetune import trials
from pipeline.finetune.live import Live
from pipeline.finetune.problems import Problem, in_cuttings, read_problems
from pipeline.finetune.settings import settings_of
from pipeline.finetune.trials import Trial
from pipeline.grid import runs, tune
from pipeline.grid.planning import grid_name, planned
from pipeline.grid.trial_set import summary
from pipeline.grid.waves import run_wave
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial


def in_this_process(
    config: Finetune,
    asked: Sequence[Trial],
    problems: Mapping[str, Mapping[Truncation, Problem]],
    initial: Initial,
    tell: Callable[..., None],
    search: str | None,
) -> dict[str, Any]:
    """As tune.run_trials, without Ray."""
    return {one.name: trials.load_or_train(one, problems[one.problem][one.config.cutting], initial) for one in asked}


def test_folds_select_one_setting_and_are_one_row(
    tmp_path: Path, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "at_once", lambda config: 2)
    monkeypatch.setattr(tune, "seconds_per_step", lambda config, cuttings, initial: dict.fromkeys(cuttings, 0.01))
    monkeypatch.setattr(tune, "run_trials", in_this_process)
    monkeypatch.setattr(runs, "log_trial", lambda *given: None)
    (tmp_path / "my.csv").write_text(
        "text;label\n" + "".join(f"{'kar mist' if row % 2 else 'lond sur'} {row};{row % 2}\n" for row in range(24))
    )
    config = Finetune(
        checkpoint="c", train=str(tmp_path / "my.csv"), output=str(tmp_path), seeds=2,
        random_weights=True, recipe=Recipe(epochs=1), placement=TrialPlacement(threads=1),
        search=GridSearch(folds=3, over=("optimizer.learning_rate=1e-4,1e-3",)),
    )  # fmt: skip
    initial = Initial(
        folder="f",
        fingerprint="e",
        model=Model(layers=1, width=8, heads=2, feed_forward=8, maximum_positions=32),
        vocabulary=tiny_vocabulary,
    )
    said: list[str] = []
    problems = {one.task.name: one for one in read_problems(config, initial, said.append)}
    cuttings = {name: in_cuttings(one, [config.cutting], initial, said.append) for name, one in problems.items()}
    grid = planned(config, initial, cuttings, settings_of(config), time.monotonic(), said.append)
    assert said[-1].startswith("12 trials: 6 that select one of 2 settings, 6 that report it on fresh seeds; 2 at once")
    assert re.fullmatch(r"my-random-weights-[0-9a-f]{8}", grid_name(config, problems, initial))
    rows, models = run_wave(grid, None, Live(said.append), said.append)
    assert models == {} and not list(tmp_path.glob("finetune/*/model")), "what folds train is no model to keep"
    assert any(
        re.match(r"my: selected learning rate 0.00\d+ \(best of 2: accuracy [\d.]+, selected on the folds\)", line)
        for line in said
    )
    names = sorted(path.parent.name.rsplit("-", 1)[0] for path in tmp_path.glob("finetune/*/result.json"))
    assert names == [f"my-fold{fold}of3-seed{seed}" for fold in (1, 2, 3) for seed in (0, 0, 1, 2)]
    accuracy = rows[0]
    assert (accuracy.task, accuracy.name, accuracy.folds, len(accuracy.values)) == ("my", "dev accuracy", 3, 6) and len(
        rows
    ) == 2
    assert accuracy.baseline == fmean(grid.baselines[name]["dev"]["accuracy"] for name in problems)
    assert "all of them have their results" in summary(grid, 2)
    assert (
        run_wave(grid, None, Live(said.append), said.append)[0] == rows
        and said[-1] == "6 of 6 trials have their results already"
    )
