"""All that a grid asks for: problems, settings, the trials that they make, and which of them have no result yet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config.finetune import Cutting, Finetune
from pipeline.config.flat import flatten
from pipeline.finetune import plan, trials
from pipeline.finetune.folds import by_task
from pipeline.finetune.problems import Problem
from pipeline.finetune.settings import with_setting
from pipeline.finetune.table import select
from pipeline.finetune.trials import Trial, make_trial
from pipeline.train.initial import Initial

STARTED = ("rte", "mrpc", "stsb")
"""Tasks that another one's encoder may start."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """All that is asked for, read and planned."""

    config: Finetune
    initial: Initial
    cuttings: dict[str, dict[Cutting, Problem]]
    """Task -> its problem in every cutting that is tried."""
    settings: list[dict[str, Any]]
    shares: dict[str, plan.Share]
    seconds: dict[str, float]
    """Task -> of one of its trials, about."""
    baselines: dict[str, dict[str, dict[str, float]]]
    """Task -> split -> metric -> what an answer that needs no model scores."""

    @property
    def problems(self) -> dict[str, Problem]:
        """Task -> its problem in the first cutting."""
        return first_of_each(self.cuttings)


def first_of_each(cuttings: Mapping[str, Mapping[Cutting, Problem]]) -> dict[str, Problem]:
    """Task -> its problem in the first cutting; items and what is true of them are the same in all."""
    return {name: next(iter(ones.values())) for name, ones in cuttings.items()}


def trial_of(grid: Grid, name: str, seed: int, setting: dict[str, Any], stage: str) -> Trial:
    """The trial of a setting, as long as the problem's share allows."""
    share, config = (
        grid.shares[name],
        with_setting(grid.config, setting).for_workers().for_width(grid.initial.model.width),
    )
    recipe = config.recipe
    if share.epochs < grid.config.recipe.epochs:
        recipe = replace(recipe, epochs=min(recipe.epochs, share.epochs))
    if share.rows is not None:
        recipe = replace(recipe, training_rows=min(recipe.training_rows or share.rows, share.rows))
    config = replace(config, recipe=recipe)
    effective = {name: value for name, value in flatten(config).items() if name in setting}
    return make_trial(config, grid.cuttings[name][config.cutting], grid.initial, seed, effective, stage)


def selection_trials(grid: Grid) -> list[Trial]:
    """The trials that select a setting; none where there is one alone. Settings that the time makes equal are one."""
    if len(grid.settings) == 1:
        return []
    seeds = range(grid.config.search.seeds)
    asked = [
        trial_of(grid, name, seed, one, "select") for name in grid.problems for one in grid.settings for seed in seeds
    ]
    return list({trial.name: trial for trial in asked}.values())


def report_trials(grid: Grid, name: str, chosen: dict[str, Any]) -> list[Trial]:
    """The trials that report a task's setting, on seeds that did not select it; those of a fold keep no model."""
    stage = "fold" if grid.problems[name].fold_of else "report"
    first = grid.config.search.seeds if len(grid.settings) > 1 else 0
    return [trial_of(grid, name, first + seed, chosen, stage) for seed in range(grid.shares[name].seeds)]


def finished_result(trial: Trial, may_stop: bool) -> dict[str, Any] | None:
    """A trial's result where nothing is left to do.

    One that reports has its model too, and one that a search ended counts in such a search alone.
    """
    result = trials.result_of(trial)
    if result is None:
        return trials.stopped_of(trial) if may_stop else None
    return result if trial.stage != "report" or trials.has_model(trial) else None


def remaining_tasks(grid: Grid) -> Iterator[str]:
    """The tasks of all trials that have no result yet, once for each trial.

    What reports a setting that is not selected yet, or starts from another task's encoder, has none.
    """
    asked, may_stop = selection_trials(grid), grid.config.search.stop_early
    results = {trial.name: finished_result(trial, may_stop) for trial in asked}
    yield from (trial.problem for trial in asked if results[trial.name] is None)
    for task, names in by_task(grid.problems).items():
        mine = [trial for trial in asked if trial.problem in names]
        known = not (grid.config.start_from and task in STARTED) and all(results[trial.name] for trial in mine)
        if not known:
            yield from (name for name in names for _ in range(grid.shares[name].seeds))
            continue
        chosen = select(mine, results, *(grid.problems[name] for name in names))[0] if mine else grid.settings[0]
        for name in names:
            yield from (name for trial in report_trials(grid, name, chosen) if finished_result(trial, False) is None)


def summary(grid: Grid, many: int) -> str:
    """How many trials there are and what for, and how long those without a result take, `many` at once."""
    tasks, settings, seeds = len(grid.problems), len(grid.settings), grid.config.seeds
    selects = settings * grid.config.search.seeds * tasks if settings > 1 else 0
    reports = sum(share.seeds for share in grid.shares.values())
    ones = f"{grid.config.search.folds} folds" if grid.config.search.folds else f"{tasks} task{'s' * (tasks > 1)}"
    parts = f"{ones}, {seeds} seed{'s' * (seeds > 1)} at most"
    if selects:
        parts = f"{selects} that select one of {settings} settings, {reports} that report it on fresh seeds"
    left, total = list(remaining_tasks(grid)), len(selection_trials(grid)) + reports
    time = plan.duration(plan.makespan((grid.seconds[name] for name in left), many))
    rest = f"{many} at once, about {time}" if left else "all of them have their results"
    done = f"{total - len(left)} of them have their results, the others " if 0 < len(left) < total else ""
    return f"{selects + reports} trial{'s' * (selects + reports > 1)}: {parts}; {done}{rest}"
