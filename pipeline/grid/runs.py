"""Log fine-tuning to MLflow: one run per grid, with the lineage of its encoder, and a child run per trial.

If the server does not answer, training continues: trials are queued until the server answers. Trials that are still
queued at the end are logged when the same command runs again.
"""

import re
import shlex
import statistics
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mlflow.entities import Metric, Param, Run, ViewType
from mlflow.tracking import MlflowClient

from pipeline.config.finetune import Finetune
from pipeline.config.flat import flatten
from pipeline.errors import CheckpointError, ConfigError, listed
from pipeline.export import registry
from pipeline.files import storage
from pipeline.files.locations import without_login
from pipeline.finetune.kinds import TRAINING
from pipeline.finetune.problems import Problem
from pipeline.finetune.table import Reported
from pipeline.finetune.trials import Trial
from pipeline.grid.lineage import lineage
from pipeline.reporting import Report
from pipeline.tracking.drivers import this_driver
from pipeline.tracking.runs import (
    DESCRIPTION,
    DRIVER,
    METRICS_A_CALL,
    PARAMETERS_A_CALL,
    is_missing,
    open_client,
    open_run,
    silence_mlflow,
)
from pipeline.train.initial import Initial
from pipeline.train.summary import table

EXPERIMENT = "finetune"
GRID, TRIAL = "grid", "trial"
"""Tags that identify MLflow runs: GRID holds the name of a grid, TRIAL the name of a trial."""
PARENT = "mlflow.parentRunId"
TABLES = "mlflow.loggedArtifacts"
"""Tag that tells MLflow's UI which artifacts are tables."""
SCORES = "scores.png"
"""Artifact: the picture of all scores."""
RETRY_SECONDS = 30.0
RUNS_A_CALL = 1_000
"""Maximum number of runs per page of a search."""
ASKED = 8
"""Number of development items on which the model logged to MLflow must agree with the model in the trial's folder."""
Waiting = tuple[Trial, dict[str, Any]]
"""A trial and its result, to be logged."""


@dataclass(kw_only=True)
class GridRun:
    """The MLflow run of a grid (all trials of a fine-tuning job), and the trials to be logged to it."""

    uri: str
    run_id: str
    experiment_id: str | None = None
    say: Callable[[str], None] = print
    logged: set[str] | None = None
    """Names of the trials that MLflow has; None at the start and after an error, until the names are read from MLflow.
    """
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """Queue of the trials to log, by name."""
    problem: str | None = None
    """Message of the error in the last attempt to log; None if the attempt succeeded."""
    again: float = 0.0
    """Earliest time of the next attempt, a value of time.monotonic()."""


def open_grid(uri: str, config: Finetune, name: str, initial: Initial) -> GridRun:
    """Continue the grid's run of this name, or create one with its parameters and lineage.

    Raises ConfigError if the server does not answer, or if config.register is not a valid name. MLflow would refuse an
    invalid name only at the end, hours later.
    """
    _require_name(config)
    silence_mlflow()
    try:
        known = _find_grid_run(uri, name)
    except Exception as error:  # an error of MLflow, SQLAlchemy or requests, about the URI
        raise ConfigError(f"mlflow_uri ({uri}) does not work: {storage.first_line(error)}") from error
    tags = {GRID: name, DESCRIPTION: _description(config, name)} | lineage(config.checkpoint, initial)
    tags |= {"teacher": config.teacher} if config.teacher else {}
    run = open_run(uri, EXPERIMENT, name, known, flatten(config), tags, setting="mlflow_uri")
    return GridRun(uri=uri, run_id=run.run_id, experiment_id=run.experiment_id)


def _description(config: Finetune, name: str) -> str:
    """Return the first description of a grid, in Markdown; the result table replaces it at the end."""
    model = without_login(config.checkpoint)
    return f"Fine-tuning **{name}**\n\n" + table(
        [
            ("checkpoint", model),
            ("tasks", listed(config.task or (without_login(str(config.train)),))),
            ("models, when they are done", storage.join(config.output, "finetune")),
        ]
    )


def record_run(parent: GridRun, location: str, report: Report) -> None:
    """Write the id of a grid's MLflow run to a file.

    If the file named another run, report that this MLflow server does not have that run.
    """
    now = {"uri": parent.uri, "run_id": parent.run_id}
    before = storage.read_object(location)
    if before is not None and before.keys() == now.keys() and before["run_id"] != parent.run_id:
        report(
            f"MLflow ({parent.uri}) does not have the run {before['run_id']}, to which this search was logged at "
            f"{before['uri']}: all trials, including finished ones, are logged to a new run"
        )
    storage.write_json(location, now)


def _require_name(config: Finetune) -> None:
    """Raise ConfigError if config.register is not a valid name of a model."""
    if config.register is not None and (not config.register.strip() or set(config.register) & set("/:'\"")):
        raise ConfigError(f"register ({config.register}) must be a name without / : ' and \", such as my-model")


def _find_grid_run(uri: str, name: str) -> str | None:
    """Return the id of the grid's run; None if it does not exist or was deleted."""
    if is_missing(uri):
        return None
    client = open_client(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    # Search by digest only: the name of a user's task may contain quotes, which would end the string in the search.
    runs = (
        _search(client, experiment.experiment_id, f"tags.{GRID} LIKE '%-{name.rsplit('-', 1)[-1]}'")
        if experiment
        else ()
    )
    return next((run.info.run_id for run in runs if run.data.tags[GRID] == name), None)


def _search(client: MlflowClient, experiment: str, condition: str) -> Iterator[Run]:
    """Yield the runs of an experiment (its id) that meet a condition and are not deleted, newest first."""
    token: str | None = ""
    while token is not None:
        page = client.search_runs([experiment], condition, ViewType.ACTIVE_ONLY, RUNS_A_CALL, page_token=token or None)
        yield from page
        token = page.token or None


@contextmanager
def end_run_with_status(parent: GridRun, live: Any) -> Generator[None]:
    """On exit, log the queued trials, and end the grid's run as FINISHED, KILLED or FAILED.

    Reports how many trials MLflow did not accept. `live` is a Live.
    """
    parent.say, status = live.report, "FAILED"
    try:
        yield
        status = "FINISHED"
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or SIGTERM, for which Ray raises SystemExit
        status = "KILLED"
        raise
    finally:
        _send_waiting(parent)
        if parent.waiting:
            parent.say(
                f"MLflow is unavailable ({parent.problem}): {len(parent.waiting)} trials are not logged; "
                "run the same command again to log them"
            )
        with report_failure(parent.say, "the grid's end"):
            open_client(parent.uri).set_terminated(parent.run_id, status)


@contextmanager
def report_failure(report: Report, what: str) -> Generator[None]:
    """Report an MLflow error in one line instead of raising it; `what` names the thing that could not be logged."""
    try:
        yield
    except Exception as error:  # a failing tracker must not end a job
        report(f"{what} could not be logged to MLflow: {storage.first_line(error)}")


def log_trial(parent: GridRun, trial: Trial, result: dict[str, Any]) -> None:
    """Log a trial as a child run of the grid's run if MLflow lacks it; queue the trial if MLflow does not answer."""
    parent.waiting[trial.name] = trial, result
    if time.monotonic() >= parent.again:
        _send_waiting(parent)


def _send_waiting(parent: GridRun) -> None:
    """Log the queued trials until an attempt fails. If attempts fail in a row, report only the first failure."""
    client, name = open_client(parent.uri), ""
    try:
        if parent.logged is None:
            parent.logged = _logged_trials(client, parent)
        while parent.waiting:
            name, (trial, result) = next(iter(parent.waiting.items()))
            if name not in parent.logged:
                _write_trial(client, parent, trial, result)
            parent.logged.add(name)
            del parent.waiting[name]
        parent.problem = None
    except Exception as error:  # training must go on without MLflow; the trials stay queued
        if parent.problem is None:
            parent.say(f"MLflow does not answer, so trials are queued: {storage.first_line(error)}")
        parent.problem, parent.again = storage.first_line(error), time.monotonic() + RETRY_SECONDS
        parent.logged = None
        if name in parent.waiting:  # move the trial to the end of the queue, in case it causes the error
            parent.waiting[name] = parent.waiting.pop(name)


def _logged_trials(client: MlflowClient, parent: GridRun) -> set[str]:
    """Return the names of completely logged trials. Delete incomplete runs, so that their trials are logged again."""
    experiment, logged = client.get_run(parent.run_id).info.experiment_id, set()
    for run in list(_search(client, experiment, f"tags.`{PARENT}` = '{parent.run_id}'")):
        if run.info.status == "FINISHED":
            logged.add(run.data.tags[TRIAL])
        else:
            client.delete_run(run.info.run_id)
    return logged


def _write_trial(client: MlflowClient, parent: GridRun, trial: Trial, result: dict[str, Any]) -> None:
    """Log a trial as a run that lasts as long as the training did; mark the run as finished once all is logged."""
    now = int(time.time() * 1000)
    tags = {
        DRIVER: this_driver(),
        PARENT: parent.run_id,
        TRIAL: trial.name,
        "stage": trial.stage,
        "task": trial.problem,
    }
    if "stopped_after_epoch" in result:
        tags |= {"stopped_early": "True", "stopped_after_epoch": str(result["stopped_after_epoch"])}
    experiment = client.get_run(parent.run_id).info.experiment_id
    run = client.create_run(
        experiment, start_time=now - int(1000 * result.get("seconds", 0.0)), tags=tags, run_name=trial.name
    )
    parameters = [
        Param(key, str(value))
        for key, value in (flatten(trial.config) | {"seed": trial.seed, "stage": trial.stage}).items()
    ]
    for start in range(0, len(parameters), PARAMETERS_A_CALL):
        client.log_batch(run.info.run_id, params=parameters[start : start + PARAMETERS_A_CALL])
    metrics = [Metric(key, float(value), now, step) for key, step, value in points(result)]
    for start in range(0, len(metrics), METRICS_A_CALL):
        client.log_batch(run.info.run_id, metrics=metrics[start : start + METRICS_A_CALL])
    _write_artifacts(client, run.info.run_id, trial, result)
    client.set_terminated(run.info.run_id, "FINISHED")


def points(result: dict[str, Any]) -> Iterator[tuple[str, int, float]]:
    """Yield (metric, step, value) of a result; the scores of an epoch are at the epoch's last step.

    If the trial kept the weights of an earlier epoch, that epoch's scores are the scores of the trial. They are
    repeated after the last step. For a trial that was stopped early, yield only its score, with the epoch as step.
    """
    if "scores" not in result:
        yield "score", result["stopped_after_epoch"], result["score"]
        return
    for step, value in result["curve"]:
        yield "train/loss", step, value
    per_epoch = result["steps"] // len(result["epochs"])
    scored_steps = [(epoch * per_epoch, scores) for epoch, scores in enumerate(result["epochs"], 1)]
    scored_steps += [(result["steps"] + 1, result["scores"])] if result["best_epoch"] < len(result["epochs"]) else []
    scored = [
        (f"{split}/{name}", step, value)
        for step, scores in scored_steps
        for split, metrics in scores.items()
        for name, value in metrics.items()
    ]
    names = metric_names(name for name, _, _ in scored)
    yield from ((names[name], step, value) for name, step, value in scored)
    yield from (
        (metric_name(f"tuned/{name}"), result["steps"], value)
        for name, value in result["tuned"].items()
        if isinstance(value, float | int)
    )
    yield from ((name, result["steps"], float(result[name])) for name in ("seconds", "collapsed", "best_epoch"))


def metric_names(names: Iterable[str]) -> dict[str, str]:
    """Return name -> metric name. If several names would have the same, as scores of the labels C# and C+, the code of
    each forbidden character is added.
    """
    short = {name: metric_name(name) for name in names}
    times = Counter(short.values())
    return {name: made if times[made] == 1 else metric_name(name, coded=True) for name, made in short.items()}


def metric_name(name: str, *, coded: bool = False) -> str:
    """Return a metric name that MLflow accepts: at most 250 characters, each forbidden character replaced by _.

    `coded`: each _ is followed by the character's code, in hexadecimal digits.
    """

    def replacement(match: re.Match[str]) -> str:
        return f"_{ord(match[0]):x}" if coded else "_"

    parts = (re.sub(r"[^\w.\- ]", replacement, part) for part in name.split("/"))
    return "/".join(part if part.strip(".") else "_" for part in parts)[:250]


def _write_artifacts(client: MlflowClient, run_id: str, trial: Trial, result: dict[str, Any]) -> None:
    """Log per-class scores, confusion matrix and thresholds, if the result has them."""
    if details := result.get("details"):
        if "confusion" in details:
            from pipeline.grid.picture import draw_confusion  # not before: a grid should start without matplotlib

            title = f"{trial.problem}, {next(iter(result['scores']))}, seed {trial.seed}"
            client.log_figure(run_id, draw_confusion(details["confusion"], details["labels"], title), "confusion.png")
        client.log_dict(run_id, details["per_class"], "per_class.json")
    if any(isinstance(value, list) for value in result.get("tuned", {}).values()):
        client.log_dict(run_id, result["tuned"], "tuned.json")


def log_table(parent: GridRun, text: str, rows: Sequence[Reported]) -> None:
    """Log the result table to the grid's run: as Markdown, as an MLflow table, as a picture and as metrics."""
    with report_failure(parent.say, "the table"):
        client = open_client(parent.uri)
        client.log_text(parent.run_id, f"{text}\n", "table.md")
        columns = (
            "task",
            "split and metric",
            "median",
            "lowest",
            "highest",
            "seeds",
            "collapsed",
            "without a model",
            "setting",
        )
        data = [
            [
                row.task,
                row.name,
                *map(_six_digits, (row.median, min(row.values), max(row.values))),
                len(row.values),
                row.collapsed,
                _six_digits(row.baseline),
                row.setting,
            ]
            for row in rows
        ]
        client.log_dict(parent.run_id, {"columns": columns, "data": data}, "table.json")
        client.set_tag(parent.run_id, DESCRIPTION, text)
        client.set_tag(parent.run_id, TABLES, '[{"path": "table.json", "type": "table"}]')
        logged, now = client.get_run(parent.run_id).data.metrics, int(time.time() * 1000)
        figures = {name: value for row in rows for name, value in _row_metrics(row)}
        names = metric_names(figures)
        fresh = [
            Metric(names[name], value, now, 0) for name, value in figures.items() if logged.get(names[name]) != value
        ]
        for start in range(0, len(fresh), METRICS_A_CALL):
            client.log_batch(parent.run_id, metrics=fresh[start : start + METRICS_A_CALL])
        _log_picture(client, parent, rows)


def _log_picture(client: MlflowClient, parent: GridRun, rows: Sequence[Reported]) -> None:
    """Log the picture of all scores that are shares; log nothing if no score is a share."""
    from pipeline.grid.picture import draw_scores  # not before: a grid should start without matplotlib

    if (figure := draw_scores(rows)) is not None:
        client.log_figure(parent.run_id, figure, SCORES)


def log_scores(parent: GridRun, task: str, split: str, scores: dict[str, float]) -> None:
    """Log the scores of a task's selected model on a split as metrics of the grid's run."""
    with report_failure(parent.say, f"the scores on {split}"):
        now = int(time.time() * 1000)
        names = metric_names(f"{task}/{split} {name}" for name in scores)
        points = [Metric(name, value, now, 0) for name, value in zip(names.values(), scores.values(), strict=True)]
        open_client(parent.uri).log_batch(parent.run_id, metrics=points)


def _six_digits(value: float | None) -> float | None:
    """Round to six significant digits, for the table that people read. Metrics are logged without rounding."""
    return None if value is None else float(f"{value:.6g}")


def _row_metrics(row: Reported) -> Iterator[tuple[str, float]]:
    """Yield (name, value) of each figure of a table row."""
    figures = {"median": row.median, "lowest": min(row.values), "highest": max(row.values), "baseline": row.baseline}
    figures |= {"mean": statistics.fmean(row.values)} if row.folds > 1 else {}
    yield from ((f"{row.task}/{row.name}/{name}", value) for name, value in figures.items() if value is not None)


def log_best(
    parent: GridRun,
    config: Finetune,
    problem: Problem,
    task_name: str,
    folder: str,
    many: bool,
    report: Report,
) -> None:
    """Register a task's best model under the name config.register, unless it is registered already.

    Do nothing if config.register is None. The model is first logged to the grid's run, and the answers of the logged
    model are compared with those of the model in `folder`. Raises CheckpointError if the answers differ. `many`:
    whether several tasks have models; if so, the task's name is added to config.register.
    """
    if config.register is None:
        return
    plain = re.sub(r"[^\w-]", "_", task_name)
    name, trial = f"{config.register}-{plain}" if many else config.register, folder.rstrip("/").rsplit("/", 2)[-2]
    try:
        if (version := _registered(parent, name, trial)) is None:
            logged = registry.log_tuned(folder, _sample_questions(problem), parent.uri, parent.run_id, plain)
            version = registry.register(logged, name, parent.uri, {TRIAL: trial})
    except CheckpointError:
        raise
    except Exception as error:  # not raised, because the model's folder is complete without MLflow
        report(
            f"{task_name}: the model {name} could not be registered in MLflow: {storage.first_line(error)}; "
            f"it is in {folder}; run the same command again to register it"
        )
        return
    report(
        f"{task_name}: registered as {version}; in this environment: MLFLOW_TRACKING_URI={shlex.quote(parent.uri)} "
        f"mlflow models predict -m {shlex.quote(version)} -i FILE.csv -t csv --env-manager local"
    )


def _registered(parent: GridRun, name: str, trial: str) -> str | None:
    """Return the newest version, models:/NAME/VERSION, that this grid registered for a trial; None if there is none."""
    versions = MlflowClient(tracking_uri=parent.uri, registry_uri=parent.uri).search_model_versions(f"name='{name}'")
    mine = [
        int(version.version)
        for version in versions
        if version.run_id == parent.run_id and version.tags.get(TRIAL) == trial
    ]
    return f"models:/{name}/{max(mine)}" if mine else None


def _sample_questions(problem: Problem) -> dict[str, list[Any]]:
    """Return the first ASKED development items as columns, in the form that a served model takes."""
    items = next(iter(problem.splits.values())).items[:ASKED]
    return TRAINING[problem.task.kind].served_columns(items)
