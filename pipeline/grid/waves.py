"""Run a grid's trials in waves: first from the checkpoint, then from the fine-tuned encoder of another task."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.config.finetune import Finetune
from pipeline.files import storage
from pipeline.finetune import trials
from pipeline.finetune.encoder import read_encoder
from pipeline.finetune.folds import by_task
from pipeline.finetune.live import Live, label
from pipeline.finetune.problems import Problem
from pipeline.finetune.settings import in_words
from pipeline.finetune.table import Reported, mean_baseline, reported, select
from pipeline.finetune.trials import Trial
from pipeline.grid import runs, trial_set, tune
from pipeline.grid.trial_set import STARTED, Grid, finished_result
from pipeline.reporting import Report
from pipeline.tasks.selection import comparable_score
from pipeline.tasks.units import format_score


def run_waves(grid: Grid, parent: runs.GridRun, live: Live, report: Report) -> tuple[list[Reported], dict[str, str]]:
    """Run the trials of all tasks; return the rows of the result table, and task -> folder of its best model."""
    rows, models = [], {}
    for wave in _waves(grid.config, grid.problems):
        later = [name for name in grid.problems if name in STARTED and grid.config.start_from in grid.problems]
        names = [name for name in grid.problems if (name in later) == (wave is not None)]
        of_wave = replace(grid, cuttings={name: grid.cuttings[name] for name in names})
        if wave is not None:
            config = replace(grid.config, checkpoint=models[wave])
            of_wave = replace(of_wave, config=config, initial=read_encoder(config, models[wave], report))
        wave_rows, best = run_wave(of_wave, parent, live, report)
        rows, models = rows + wave_rows, models | best
    return rows, models


def _waves(config: Finetune, problems: Mapping[str, Problem]) -> list[str | None]:
    """Return the start of each wave.

    The first wave starts from the checkpoint: None. The second wave starts from the task config.start_from. There is no
    second wave if config.start_from is not set, or if no task of the grid is in STARTED.
    """
    return (
        [None]
        if config.start_from is None or not any(name in STARTED for name in problems)
        else [None, config.start_from]
    )


def run_wave(grid: Grid, parent: Any, live: Live, report: Report) -> tuple[list[Reported], dict[str, str]]:
    """Run the trials of one wave; return rows and models as `run_waves` does.

    If there are several settings, first select one setting per task. Then train this setting with seeds that were not
    used to select it. The rows hold the scores of these seeds.
    """
    chosen = dict.fromkeys(grid.problems, grid.settings[0])
    tasks = by_task(grid.problems)
    words = dict.fromkeys(tasks, "")
    if selecting := trial_set.selection_trials(grid):
        groups = (
            [[trial for trial in selecting if trial.problem == name] for name in grid.problems]
            if grid.config.search.stop_early
            else [selecting]
        )
        results = {}
        for group in groups:  # early stopping compares scores, so each group has the trials of one problem
            results |= run_all(grid, group, parent, live, may_stop=grid.config.search.stop_early)
        for task, names in tasks.items():
            best, value = select(selecting, results, *(grid.problems[name] for name in names))
            tried = len({str(trial.chosen) for trial in selecting if trial.problem == names[0]})
            metric = grid.problems[names[0]].task.metrics[0]
            where = "the folds" if len(names) > 1 else "dev"
            selected = (
                f"{in_words(best)} (best of {tried}: {metric} {format_score(metric, value)}, selected on {where})"
            )
            chosen |= dict.fromkeys(names, best)
            words[task] = selected
            report(f"{task}: selected {selected}")
    reporting = {name: trial_set.report_trials(grid, name, chosen[name]) for name in grid.problems}
    results = run_all(
        grid, [trial for wave_trials in reporting.values() for trial in wave_trials], parent, live, may_stop=False
    )
    rows, models = [], {}
    for task, names in tasks.items():
        wave_trials = [trial for name in names for trial in reporting[name]]
        mine, problem = [results[trial.name] for trial in wave_trials], grid.problems[names[0]]
        if problem.teacher is not None:
            words[task] = ", ".join(filter(None, [words[task], f"with teacher {problem.teacher.name}"]))
        rows += reported(
            problem, mean_baseline([grid.baselines[name] for name in names]), mine, words[task], len(names)
        )
        if problem.fold_of is None:  # folds have no best model: their models were scored on different rows
            models[task] = best_model(problem, wave_trials, mine)
    return rows, models


def run_all(
    grid: Grid, trials_of_wave: Sequence[Trial], parent: Any, live: Live, *, may_stop: bool
) -> dict[str, dict[str, Any]]:
    """Run the trials that have no result yet, log all trials to MLflow (`parent`), and return trial name -> result."""
    search = trials.search_of(trials_of_wave) if may_stop else None
    ready = {trial.name: result for trial in trials_of_wave if (result := finished_result(trial, search)) is not None}
    for trial in {trial.name: trial for trial in trials_of_wave if trials.is_damaged(trial)}.values():
        live.report(f"{storage.join(trial.folder, trials.RESULT)} is damaged: the trial is trained again")
    missing = sorted(
        (trial for trial in trials_of_wave if trial.name not in ready), key=lambda trial: -grid.seconds[trial.problem]
    )  # start the longest trials first, so that all trials end sooner
    for trial in missing:
        if step := trials.kept_step(trial):
            live.report(f"{label(trial)}: continues after step {step:,}")
    with live.table(trials_of_wave, ready):
        for trial in trials_of_wave:
            if trial.name in ready:
                runs.log_trial(parent, trial, ready[trial.name])

        def tell(trial: Trial, state: str, news: dict[str, Any]) -> None:
            live.tell(trial, state, news)
            if state == "done":
                runs.log_trial(parent, trial, news)

        fresh = tune.run_trials(grid.config, missing, grid.cuttings, grid.initial, tell, search) if missing else {}
        for trial in missing:  # log the trials that were stopped early; `tell` has logged all others
            runs.log_trial(parent, trial, fresh[trial.name])
    return ready | fresh


def best_model(problem: Problem, finished: Sequence[Trial], results: Sequence[dict[str, Any]]) -> str:
    """Return the folder of the model with the best development score among finished trials."""
    first, metric = next(iter(problem.splits)), problem.task.metrics[0]
    best = max(
        range(len(finished)), key=lambda index: comparable_score(metric, results[index]["scores"][first][metric])
    )
    return storage.join(finished[best].folder, trials.MODEL)
