"""List the trials of a grid (all trials of a fine-tuning job): trials that select a setting, trials that report the
selected setting, and trials that have no result yet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.flat import flatten
from pipeline.finetune import plan, trials
from pipeline.finetune.folds import by_task
from pipeline.finetune.problems import Problem
from pipeline.finetune.settings import with_setting
from pipeline.finetune.table import select
from pipeline.finetune.trials import Trial, make_trial
from pipeline.reporting import estimate
from pipeline.train.initial import Initial

STARTED = ("rte", "mrpc", "stsb")
"""Tasks that start from another task's fine-tuned encoder if config.start_from is set; the setting names that task."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Inputs and plan of a grid."""

    config: Finetune
    initial: Initial
    cuttings: dict[str, dict[Truncation, Problem]]
    """Name of a problem -> cutting (truncation settings) to try -> the problem, encoded with this cutting."""
    settings: list[dict[str, Any]]
    """Settings to try, each as {dotted name: value}."""
    shares: dict[str, plan.Share]
    """Name of a problem -> how much of it is trained."""
    seconds: dict[str, float]
    """Name of a problem -> estimated seconds per trial."""
    baselines: dict[str, dict[str, dict[str, float]]]
    """Name of a problem -> split -> metric -> score of the model-free baseline."""

    @property
    def problems(self) -> dict[str, Problem]:
        """Name of a problem -> the problem, encoded with the first cutting."""
        return first_of_each(self.cuttings)


def first_of_each(cuttings: Mapping[str, Mapping[Truncation, Problem]]) -> dict[str, Problem]:
    """Return name -> the problem, encoded with the first cutting. A problem has the same items with every cutting."""
    return {name: next(iter(problems.values())) for name, problems in cuttings.items()}


def trial_of(grid: Grid, name: str, seed: int, setting: dict[str, Any], stage: str) -> Trial:
    """Return the trial of the problem `name` with a seed and a setting, limited to the epochs and rows of its share."""
    share, config = (
        grid.shares[name],
        with_setting(grid.config, setting).for_workers().for_model(grid.initial.model),
    )
    recipe = config.recipe
    if share.epochs < grid.config.recipe.epochs:
        recipe = replace(recipe, epochs=min(recipe.epochs, share.epochs))
    if share.rows is not None and share.rows != grid.config.recipe.training_rows:
        recipe = replace(recipe, training_rows=min(recipe.training_rows or share.rows, share.rows))
    config = replace(config, recipe=recipe)
    effective = {name: value for name, value in flatten(config).items() if name in setting}
    return make_trial(config, grid.cuttings[name][config.cutting], grid.initial, seed, effective, stage)


def selection_trials(grid: Grid) -> list[Trial]:
    """Return the trials that select a setting; empty if there is only one setting.

    The time limit may make settings equal, such as 3 and 4 epochs if at most 2 epochs are trained. Equal settings share
    their trials.
    """
    if len(grid.settings) == 1:
        return []
    seeds = range(grid.config.search.seeds)
    asked = [
        trial_of(grid, name, seed, setting, "select")
        for name in grid.problems
        for setting in grid.settings
        for seed in seeds
    ]
    return list({trial.name: trial for trial in asked}.values())


def report_trials(grid: Grid, name: str, chosen: dict[str, Any]) -> list[Trial]:
    """Return the trials that report the setting `chosen` of a problem, on seeds that were not used to select it.

    Trials of folds keep no model.
    """
    stage = "fold" if grid.problems[name].fold_of else "report"
    first = grid.config.search.seeds if len(grid.settings) > 1 else 0
    return [trial_of(grid, name, first + seed, chosen, stage) for seed in range(grid.shares[name].seeds)]


def finished_result(trial: Trial, search: str | None) -> dict[str, Any] | None:
    """Return a trial's result; None if the trial must still run.

    A trial of stage report must have its model too. If the search `search` (`trials.search_of`) stopped the trial
    early, the record of this counts as a result.
    """
    result = trials.result_of(trial)
    if result is None:
        return None if search is None else trials.stopped_of(trial, search)
    return result if trial.stage != "report" or trials.has_model(trial) else None


def remaining_tasks(grid: Grid) -> Iterator[str]:
    """Yield the problem's name for each trial that has no result yet.

    Trials count as having no result if they report a setting that is not yet selected, or start from another task's
    encoder.
    """
    asked, may_stop = selection_trials(grid), grid.config.search.stop_early
    searches = {name: trials.search_of([trial for trial in asked if trial.problem == name]) for name in grid.problems}
    results: dict[str, Any] = {
        trial.name: finished_result(trial, searches[trial.problem] if may_stop else None) for trial in asked
    }
    yield from (trial.problem for trial in asked if results[trial.name] is None)
    for task, names in by_task(grid.problems).items():
        mine = [trial for trial in asked if trial.problem in names]
        known = not (grid.config.start_from and task in STARTED) and all(results[trial.name] for trial in mine)
        if not known:
            yield from (name for name in names for _ in range(grid.shares[name].seeds))
            continue
        chosen = select(mine, results, *(grid.problems[name] for name in names))[0] if mine else grid.settings[0]
        for name in names:
            yield from (name for trial in report_trials(grid, name, chosen) if finished_result(trial, None) is None)


def summary(grid: Grid, many: int) -> str:
    """Return a line with the number and purpose of all trials, and the estimated time of the trials without a result.

    `many` is the number of trials that run at once.
    """
    tasks, settings, seeds = len(grid.problems), len(grid.settings), grid.config.seeds
    selects = settings * grid.config.search.seeds * tasks if settings > 1 else 0
    reports = sum(share.seeds for share in grid.shares.values())
    units = f"{grid.config.search.folds} folds" if grid.config.search.folds else f"{tasks} task{'s' * (tasks > 1)}"
    parts = f"{units}, {seeds} seed{'s' * (seeds > 1)} at most"
    if selects:
        parts = f"{selects} that select one of {settings} settings, {reports} that report it on fresh seeds"
    left, total = list(remaining_tasks(grid)), len(selection_trials(grid)) + reports
    time = estimate(plan.makespan((grid.seconds[name] for name in left), many))
    rest = f"{many} at once, about {time}" if left else "all of them have their results"
    done = f"{total - len(left)} of them have their results, the others " if 0 < len(left) < total else ""
    return f"{selects + reports} trial{'s' * (selects + reports > 1)}: {parts}; {done}{rest}"
