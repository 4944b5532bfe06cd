"""The fine-tuning job: an encoder and tasks -> trials on Ray Tune -> selected settings, fresh seeds -> table, models,
MLflow.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline import cluster, storage
from pipeline.config.adapters import Bottleneck
from pipeline.config.finetune import Cutting, Finetune
from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import with_absolute_locations
from pipeline.config.training import Tracking
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.finetune import plan, trials
from pipeline.finetune.folds import by_task
from pipeline.finetune.live import Live, label
from pipeline.finetune.problems import Problem, data_of, in_cuttings, read_problems
from pipeline.finetune.settings import in_words, settings_of, warnings, with_setting
from pipeline.finetune.submission import rows_to_answer, submit
from pipeline.finetune.table import Reported, format_score, glue_line, mean_baseline, reported, select, table
from pipeline.finetune.trials import Trial
from pipeline.grid import runs, trial_set, tune
from pipeline.grid.closing import use_line
from pipeline.grid.precision import with_precision
from pipeline.grid.testing import require_readable, score_and_answer
from pipeline.grid.trial_set import STARTED, Grid, finished_result, first_of_each
from pipeline.locations import is_url
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.known import GLUE
from pipeline.tasks.selection import comparable_score
from pipeline.train.initial import POOLER, Initial, read_initial
from pipeline.train.probe import require_usable_gpus
from pipeline.train.summary import to_open
from pipeline.train.tracking import tracking_uri
from pipeline.train.tuned import ADAPTERS

Report = Callable[[str], None]
WEIGHTED = ("classification", "tags")
"""Kinds whose loss can weight classes."""


@dataclass(frozen=True, kw_only=True)
class FinetuneResult:
    """Result of a fine-tuning job."""

    rows: list[Reported]
    models: dict[str, str]
    """Task -> folder of its best reported model on the development split."""
    closing: list[str]
    """Lines on how to use the models and where to look at the trials."""


@cluster.ray_errors_as_cluster_lost()
def finetune(config: Finetune, report: Report) -> FinetuneResult:
    """Run every trial that has no result yet, print the table and return its content.

    Raises PipelineError in one line, before any training, for everything that the user can fix.
    """
    begun = time.monotonic()
    config = with_absolute_locations(config)
    settings = settings_of(config)
    storage.require_writable("output", config.output)
    initial = encoder_of(config, config.checkpoint, report)
    config = config.for_width(initial.model.width)
    tried = [with_setting(config, setting).cutting for setting in settings]
    problems = {one.task.name: one for one in read_problems(replace(config, cutting=tried[0]), initial, report)}
    _require_start(config, problems)
    _require_fitting(config, settings, initial, problems)
    for problem in problems.values():
        require_readable(config, problem.task)
    cuttings = {name: in_cuttings(problem, tried, initial, report) for name, problem in problems.items()}
    uri = tracking_uri(Tracking(uri=config.mlflow_uri), config.output)
    tune.connect(config)
    if (cluster.count_nodes() > 1 or config.placement.autoscaled) and not is_url(config.output):
        report(f"several machines: output ({config.output}) must be a folder that all of them see, or a URL")
    for line in warnings(config, settings, initial.model):
        report(line)
    if (asked := tune.resources(config)).get("GPU"):
        require_usable_gpus()
    computed = with_precision(config, initial.model.width, asked, report)
    grid = planned(computed, initial, cuttings, settings, begun, report)
    name = grid_name(config, problems, initial)
    parent = runs.open_grid(uri, config, name, initial)
    runs.record_run(parent, storage.join(config.output, "finetune", "grids", f"{name}.mlflow.json"), report)
    live = Live(report)
    with runs.end_run_with_status(parent, live):
        rows, models = [], {}
        for wave in _waves(config, problems):
            start = grid.initial if wave is None else encoder_of(config, models[wave], report)
            mine = computed if wave is None else replace(computed, checkpoint=models[wave])
            names = [
                name for name in problems if (name in STARTED and config.start_from in problems) == (wave is not None)
            ]
            found, best = run_wave(
                replace(grid, config=mine, initial=start, cuttings={name: cuttings[name] for name in names}),
                parent,
                live,
                report,
            )
            rows, models = rows + found, models | best
        text = table(rows, initial.model)
        runs.log_table(parent, text, rows)
        report("\n".join(["", text, *filter(None, [glue_line(rows, GLUE)]), ""]))
        for name, folder in models.items():
            score_and_answer(config, problems[name].task, folder, parent, report)
            runs.log_best(parent, config, problems[name], name, folder, len(models) > 1, report)
        try:
            submit(replace(config, data=data_of(config)), problems, models, report)
        except DataError as error:  # the scores are there, and a file of GLUE's that is odd does not undo them
            report(f"no GLUE submission file: {error}")
    closing = []
    for name, folder in models.items():
        closing.append(f"model of {name}, the best of its seeds on dev: {folder}")
        closing.append(f"    to use it: {use_line(config, problems[name].task, folder)}")
    if config.search.folds:
        closing.append(
            "folds measure settings and keep no model: the same command without --search.folds, with the settings "
            "that are best, trains one"
        )
    closing.append(f"trials in MLflow: {to_open(parent.uri, parent.run_id, parent.experiment_id)}")
    return FinetuneResult(rows=rows, models=models, closing=closing)


def encoder_of(config: Finetune, checkpoint: str, report: Report) -> Initial:
    """Read a checkpoint's published model. Raises CheckpointError if it cannot be used."""
    init = Pretrain(init=checkpoint, output=config.output, vocabulary=config.vocabulary)
    try:
        return read_initial(init, lambda line: report(line.replace("init:", "checkpoint:", 1)), used=(POOLER,))
    except CheckpointError as error:  # read_initial speaks of its own setting
        raise CheckpointError(f"checkpoint {str(error).removeprefix('init ')}") from error


def _require_fitting(
    config: Finetune, settings: Sequence[dict[str, Any]], initial: Initial, problems: Mapping[str, Problem]
) -> None:
    """Raise ConfigError for settings that do not fit this checkpoint and these tasks."""
    for one in (with_setting(config, setting) for setting in settings):
        if config.start_from and (isinstance(one.adapter, Bottleneck) or config.random_weights):
            raise ConfigError(
                f"start_from ({config.start_from}) hands on a whole encoder: leave out "
                f"{'random_weights' if config.random_weights else 'adapter:bottleneck'}"
            )
        if one.freeze.layers > initial.model.layers:
            raise ConfigError(
                f"freeze.layers ({one.freeze.layers}) must be at most the checkpoint's layers ({initial.model.layers})"
            )
        odd = [name for name, problem in problems.items() if problem.task.kind not in WEIGHTED]
        if one.recipe.balance_classes and odd:
            raise ConfigError(
                f"recipe.balance_classes (True) is for {' and '.join(WEIGHTED)}, and {', '.join(odd)} is "
                f"{problems[odd[0]].task.kind}: leave it out"
            )
    if storage.exists(storage.join(config.checkpoint, ADAPTERS)):
        raise ConfigError(
            f"checkpoint ({config.checkpoint}) has bottleneck adapters, and fine-tuning cannot continue from those: "
            "choose another"
        )


def _require_start(config: Finetune, problems: Mapping[str, Problem]) -> None:
    """Raise ConfigError if the task that starts others is not requested, or is one of those it starts."""
    start = config.start_from
    if start is not None and (start not in problems or start in STARTED):
        raise ConfigError(
            f"start_from ({start}) must be one of the tasks asked for ({', '.join(problems)}), and none of "
            f"{', '.join(STARTED)}, which it starts"
        )


def _waves(config: Finetune, problems: Mapping[str, Problem]) -> list[str | None]:
    """Return [None], for trials from the checkpoint, followed by the task whose encoder starts others, if any does."""
    return (
        [None]
        if config.start_from is None or not any(name in STARTED for name in problems)
        else [None, config.start_from]
    )


def planned(
    config: Finetune,
    initial: Initial,
    cuttings: dict[str, dict[Cutting, Problem]],
    settings: list[dict[str, Any]],
    begun: float,
    report: Report,
) -> Grid:
    """Return the grid, limited to the time left since `begun`, and report its size and duration."""
    problems, many = first_of_each(cuttings), tune.at_once(config)
    location = storage.join(config.output, "finetune", "grids", f"{grid_name(config, problems, initial)}.json")
    to_answer = rows_to_answer(data_of(config), problems)
    if known := plan.read_plan(location):
        shares, per_step = known
        answering = plan.answering_seconds(config, to_answer, per_step, many)
    else:
        measured = tune.seconds_per_step(
            config, {ones[0]: cuttings[ones[0]] for ones in by_task(problems).values()}, initial
        )
        per_step = {name: measured[ones[0]] for ones in by_task(problems).values() for name in ones}
        answering = plan.answering_seconds(config, to_answer, per_step, many)
        shares = plan.fit_to_time(
            config, list(problems.values()), per_step, many, len(settings), spent=time.monotonic() - begun + answering
        )
        shares = {
            name: min((shares[one] for one in ones), key=plan.size)
            for ones in by_task(problems).values()
            for name in ones
        }  # folds alike
        plan.write_plan(location, shares, per_step)
    for name, problem in problems.items():
        if line := plan.left_out(problem, config, shares[name]):
            report(line)
    baselines = {
        name: {
            split: KINDS[one.task.kind].baseline(one.task, one.train, prepared)
            for split, prepared in one.splits.items()
        }
        for name, one in problems.items()
    }
    each = {
        name: plan.trial_seconds(config, problem, per_step[name], shares[name]) for name, problem in problems.items()
    }
    grid = Grid(
        config=config,
        initial=initial,
        cuttings=cuttings,
        settings=settings,
        shares=shares,
        seconds=each,
        baselines=baselines,
    )
    report(trial_set.summary(grid, many))
    if to_answer:
        report(
            f"then the {sum(to_answer.values()):,} test rows of GLUE's submission file, about "
            f"{plan.duration(answering)}"
        )
    return grid


def grid_name(config: Finetune, problems: Mapping[str, Problem], initial: Initial) -> str:
    """Return the tasks' names and a digest of everything that defines the trials."""
    shaping = {
        key: value
        for key, value in flatten(config).items()
        if key.split(".")[0]
        not in ("placement", "trials", "output", "mlflow_uri", "register", "checkpoint", "data", "train", "dev", "test")
    }
    content = json.dumps(
        [shaping, initial.fingerprint, sorted((name, one.digest) for name, one in problems.items())], sort_keys=True
    )
    tasks = by_task(problems)
    names = "-".join(tasks) if len(tasks) < 4 else f"{len(tasks)}-tasks"
    names += "-random-weights" * config.random_weights
    return f"{names}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def run_wave(grid: Grid, parent: Any, live: Live, report: Report) -> tuple[list[Reported], dict[str, str]]:
    """Select a setting per problem if there are several, report it on fresh seeds, and return the rows
    and best models.
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
        found = {}
        for group in groups:  # halving compares scores, which are of one task then
            found |= run_all(grid, group, parent, live, may_stop=grid.config.search.stop_early)
        for task, names in tasks.items():
            best, value = select(selecting, found, *(grid.problems[name] for name in names))
            tried = len({str(trial.chosen) for trial in selecting if trial.problem == names[0]})
            metric = grid.problems[names[0]].task.metrics[0]
            where = "the folds" if len(names) > 1 else "dev"
            said = f"{in_words(best)} (best of {tried}: {metric} {format_score(metric, value)}, selected on {where})"
            chosen |= dict.fromkeys(names, best)
            words[task] = said
            report(f"{task}: selected {said}")
    reporting = {name: trial_set.report_trials(grid, name, chosen[name]) for name in grid.problems}
    results = run_all(grid, [trial for ones in reporting.values() for trial in ones], parent, live, may_stop=False)
    rows, models = [], {}
    for task, names in tasks.items():
        ones = [trial for name in names for trial in reporting[name]]
        mine, problem = [results[trial.name] for trial in ones], grid.problems[names[0]]
        rows += reported(
            problem, mean_baseline([grid.baselines[name] for name in names]), mine, words[task], len(names)
        )
        if problem.fold_of is None:  # the best of models that were scored on different rows is none
            models[task] = best_model(problem, ones, mine)
    return rows, models


def run_all(grid: Grid, ones: Sequence[Trial], parent: Any, live: Live, *, may_stop: bool) -> dict[str, dict[str, Any]]:
    """Return the trials' results; only those without a result are sent to the cluster."""
    ready = {trial.name: result for trial in ones if (result := finished_result(trial, may_stop)) is not None}
    for trial in {trial.name: trial for trial in ones if trials.is_damaged(trial)}.values():
        live.report(f"{storage.join(trial.folder, trials.RESULT)} is damaged: the trial is trained again")
    missing = sorted(
        (trial for trial in ones if trial.name not in ready), key=lambda trial: -grid.seconds[trial.problem]
    )  # the longest first: they all end sooner
    for trial in missing:
        if step := trials.kept_step(trial):
            live.report(f"{label(trial)}: goes on after step {step:,}")
    with live.table(ones, ready):
        for trial in ones:
            if trial.name in ready:
                runs.log_trial(parent, trial, ready[trial.name])

        def tell(trial: Trial, state: str, news: dict[str, Any]) -> None:
            live.tell(trial, state, news)
            if state == "done":
                runs.log_trial(parent, trial, news)

        fresh = (
            tune.run_trials(grid.config, missing, grid.cuttings, grid.initial, tell, may_stop=may_stop)
            if missing
            else {}
        )
        for trial in missing:  # those that were stopped early; the others are there
            runs.log_trial(parent, trial, fresh[trial.name])
    return ready | fresh


def best_model(problem: Problem, ones: Sequence[Trial], results: Sequence[dict[str, Any]]) -> str:
    """Return the folder of the model with the best development score."""
    first, metric = next(iter(problem.splits)), problem.task.metrics[0]
    best = max(range(len(ones)), key=lambda index: comparable_score(metric, results[index]["scores"][first][metric]))
    return storage.join(ones[best].folder, trials.MODEL)
