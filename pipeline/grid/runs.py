"""Fine-tuning in MLflow: a run for the grid, with all that says where its encoder is from, and in it a run for each trial.

A server that is away stops no training: trials wait here until it answers, and those that are lost are logged by the same command again.
"""

import re
import shlex
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mlflow.entities import Metric, Param, Run, ViewType
from mlflow.tracking import MlflowClient

from pipeline import storage
from pipeline.config.finetune import Finetune
from pipeline.config.flat import flatten
from pipeline.errors import CheckpointError, ConfigError, listed
from pipeline.export import registry
from pipeline.finetune.problems import Problem
from pipeline.finetune.table import Reported
from pipeline.finetune.trials import Trial
from pipeline.grid.lineage import lineage
from pipeline.grid.picture import draw_confusion
from pipeline.train.drivers import this_driver
from pipeline.train.initial import Initial
from pipeline.train.summary import table
from pipeline.train.tracking import DESCRIPTION, DRIVER, METRICS_A_CALL, PARAMETERS_A_CALL, open_run, silence_mlflow

EXPERIMENT, SQLITE = "finetune", "sqlite:///"
GRID, TRIAL = "grid", "trial"
"""Tags with the names of a grid and of a trial, by which they are found again."""
PARENT = "mlflow.parentRunId"
TABLES = "mlflow.loggedArtifacts"
"""Tag by which MLflow's UI knows an artifact to be a table."""
RETRY_SECONDS = 30.0
RUNS_A_CALL = 1_000
ASKED = 8
"""Development items on which a logged model is compared with its folder."""
Waiting = tuple[Trial, dict[str, Any]]


@dataclass(kw_only=True)
class GridRun:
    """A grid's run, and what MLflow has not taken yet."""

    uri: str
    run_id: str
    experiment_id: str | None = None
    say: Callable[[str], None] = print
    logged: set[str] | None = None
    """Names of the trials that are in it; None until MLflow was asked."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    problem: str | None = None
    """Why the last trial was not taken."""
    again: float = 0.0
    """When to ask again, on the monotonic clock."""


def open_grid(uri: str, config: Finetune, name: str, initial: Initial) -> GridRun:
    """The grid's run: the one of this name, continued, or a new one with its parameters and lineage.

    Raises ConfigError when the server does not answer, and for a name of a registered model that MLflow would refuse after hours.
    """
    require_name(config)
    silence_mlflow()
    try:
        known = find_grid_run(uri, name)
    except Exception as error:  # MLflow lets SQLAlchemy's, requests' and its own errors through, all about this URI
        raise ConfigError(f"mlflow_uri ({uri}) does not work: {storage.first_line(error)}") from error
    try:
        tags = {GRID: name, DESCRIPTION: description(config, name)} | lineage(config.checkpoint, initial)
        run = open_run(uri, EXPERIMENT, name, known, flatten(config), tags)
    except ConfigError as error:  # open_run speaks of pretraining's setting
        raise ConfigError(str(error).replace("tracking.uri", "mlflow_uri", 1)) from error
    return GridRun(uri=uri, run_id=run.run_id, experiment_id=run.experiment_id)


def description(config: Finetune, name: str) -> str:
    """What a grid is, known before its first trial, in Markdown; its table takes the place at the end."""
    model = storage.without_login(storage.absolute(config.checkpoint))
    return f"Fine-tuning **{name}**\n\n" + table(
        [
            ("checkpoint", model),
            ("tasks", listed(config.task)),
            ("models, when they are done", storage.join(config.output, "finetune")),
        ]
    )


def record_run(parent: GridRun, place: str, report: Callable[[str], None]) -> None:
    """Write down which MLflow run a grid has; say so where it had another, which this MLflow does not know any more."""
    now = {"uri": parent.uri, "run_id": parent.run_id}
    before = storage.read_object(place)
    if before is not None and before.keys() == now.keys() and before != now:
        report(
            f"MLflow ({parent.uri}) does not have the run {before['run_id']} that this search had at {before['uri']}: a new one takes all trials, also those that are done"
        )
    storage.write_json(place, now)


def require_name(config: Finetune) -> None:
    """Raise ConfigError for a name of a registered model that cannot be."""
    if config.register is not None and (not config.register.strip() or set(config.register) & set("/:'\"")):
        raise ConfigError(f"register ({config.register}) must be a name without / : ' and \", such as my-model")


def find_grid_run(uri: str, name: str) -> str | None:
    """Id of the grid's run, where it has one that was not deleted."""
    if uri.startswith(SQLITE) and not storage.exists(uri.removeprefix(SQLITE)):
        return None
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    # Its digest alone is asked for: the name of a task of one's own may have quotes in it.
    runs = (
        search(client, experiment.experiment_id, f"tags.{GRID} LIKE '%-{name.rsplit('-', 1)[-1]}'")
        if experiment
        else ()
    )
    return next((run.info.run_id for run in runs if run.data.tags[GRID] == name), None)


def search(client: MlflowClient, experiment: str, words: str) -> Iterator[Run]:
    """All runs that were not deleted, newest first."""
    token: str | None = ""
    while token is not None:
        page = client.search_runs([experiment], words, ViewType.ACTIVE_ONLY, RUNS_A_CALL, page_token=token or None)
        yield from page
        token = page.token or None


@contextmanager
def end_run_with_status(parent: GridRun, live: Any) -> Iterator[None]:
    """End the grid's run as FINISHED, KILLED or FAILED; `live.report` is told what MLflow does not take."""
    parent.say, status = live.report, "FAILED"
    try:
        yield
        status = "FINISHED"
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, and what Ray makes of the SIGTERM that stops a job
        status = "KILLED"
        raise
    finally:
        send_waiting(parent)
        if parent.waiting:
            parent.say(
                f"MLflow is away ({parent.problem}): {len(parent.waiting)} trials are not in it; the same command logs them"
            )
        with report_failure(parent, "the grid's end"):
            MlflowClient(tracking_uri=parent.uri).set_terminated(parent.run_id, status)


@contextmanager
def report_failure(parent: GridRun, what: str) -> Iterator[None]:
    """Make a line of what MLflow does not take."""
    try:
        yield
    except Exception as error:  # a grid that dies of its tracker helps nobody
        parent.say(f"MLflow did not take {what}: {storage.first_line(error)}")


def log_trial(parent: GridRun, trial: Trial, result: dict[str, Any]) -> None:
    """Log a trial as a run in the grid's, once; one that MLflow does not take waits until it answers."""
    parent.waiting[trial.name] = trial, result
    if time.monotonic() >= parent.again:
        send_waiting(parent)


def send_waiting(parent: GridRun) -> None:
    """Log the trials that wait, until one is not taken; says so the first time."""
    client, name = MlflowClient(tracking_uri=parent.uri), ""
    try:
        if parent.logged is None:
            parent.logged = logged_trials(client, parent)
        while parent.waiting:
            name, (trial, result) = next(iter(parent.waiting.items()))
            if name not in parent.logged:
                write_trial(client, parent, trial, result)
            parent.logged.add(name)
            del parent.waiting[name]
        parent.problem = None
    except Exception as error:  # kept and sent again: training goes on without its tracker
        if parent.problem is None:
            parent.say(f"MLflow does not answer, trials are kept for it: {storage.first_line(error)}")
        parent.problem, parent.again = storage.first_line(error), time.monotonic() + RETRY_SECONDS
        parent.logged = None
        if name in parent.waiting:  # if it is the trial's own fault, the others come first next time
            parent.waiting[name] = parent.waiting.pop(name)


def logged_trials(client: MlflowClient, parent: GridRun) -> set[str]:
    """Names of the grid's trials that are whole; those that were cut off are deleted, to be logged anew."""
    experiment, there = client.get_run(parent.run_id).info.experiment_id, set()
    for run in list(search(client, experiment, f"tags.`{PARENT}` = '{parent.run_id}'")):
        if run.info.status == "FINISHED":
            there.add(run.data.tags[TRIAL])
        else:
            client.delete_run(run.info.run_id)
    return there


def write_trial(client: MlflowClient, parent: GridRun, trial: Trial, result: dict[str, Any]) -> None:
    """A trial's run, as long as its training took, and finished last."""
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
    write_artifacts(client, run.info.run_id, trial, result)
    client.set_terminated(run.info.run_id, "FINISHED")


def points(result: dict[str, Any]) -> Iterator[tuple[str, int, float]]:
    """(metric, step, value) of all that a result says; scores stand at the step that their epoch ended with.

    Where an earlier epoch's weights were kept, their scores stand again behind the last step: they are the trial's.
    """
    if "scores" not in result:
        yield "score", result["stopped_after_epoch"], result["score"]
        return
    for step, value in result["curve"]:
        yield "train/loss", step, value
    per_epoch = result["steps"] // len(result["epochs"])
    whole = [(epoch * per_epoch, scores) for epoch, scores in enumerate(result["epochs"], 1)]
    whole += [(result["steps"] + 1, result["scores"])] if result["best_epoch"] < len(result["epochs"]) else []
    for step, scores in whole:
        yield from (
            (metric_name(f"{split}/{name}"), step, value)
            for split, found in scores.items()
            for name, value in found.items()
        )
    yield from (
        (metric_name(f"tuned/{name}"), result["steps"], value)
        for name, value in result["tuned"].items()
        if isinstance(value, float | int)
    )
    yield from ((name, result["steps"], float(result[name])) for name in ("seconds", "collapsed", "best_epoch"))


def metric_name(name: str) -> str:
    """A metric's name of which MLflow takes every character."""
    parts = (re.sub(r"[^\w.\- ]", "_", part) for part in name.split("/"))
    return "/".join(part if part.strip(".") else "_" for part in parts)[:250]


def write_artifacts(client: MlflowClient, run_id: str, trial: Trial, result: dict[str, Any]) -> None:
    """The figures of each class or label, and of classes how often each was taken for each; thresholds of labels."""
    if details := result.get("details"):
        if "confusion" in details:
            title = f"{trial.problem}, {next(iter(result['scores']))}, seed {trial.seed}"
            client.log_figure(run_id, draw_confusion(details["confusion"], details["labels"], title), "confusion.png")
        client.log_dict(run_id, details["per_class"], "per_class.json")
    if any(isinstance(value, list) for value in result.get("tuned", {}).values()):
        client.log_dict(run_id, result["tuned"], "tuned.json")


def log_table(parent: GridRun, text: str, rows: Sequence[Reported]) -> None:
    """The table as Markdown and as MLflow's UI shows tables, and its figures as metrics of the grid's run."""
    with report_failure(parent, "the table"):
        client = MlflowClient(tracking_uri=parent.uri)
        client.log_text(parent.run_id, f"{text}\n", "table.md")
        columns = (
            "task",
            "split and metric",
            "median",
            "lowest",
            "highest",
            "seeds",
            "collapsed",
            "baseline",
            "setting",
        )
        data = [
            [
                one.task,
                one.name,
                *map(six_digits, (one.median, min(one.values), max(one.values))),
                len(one.values),
                one.collapsed,
                six_digits(one.baseline),
                one.setting,
            ]
            for one in rows
        ]
        client.log_dict(parent.run_id, {"columns": columns, "data": data}, "table.json")
        client.set_tag(parent.run_id, DESCRIPTION, text)
        client.set_tag(parent.run_id, TABLES, '[{"path": "table.json", "type": "table"}]')
        there, now = client.get_run(parent.run_id).data.metrics, int(time.time() * 1000)
        fresh = [
            Metric(name, value, now, 0) for one in rows for name, value in row_metrics(one) if there.get(name) != value
        ]
        for start in range(0, len(fresh), METRICS_A_CALL):
            client.log_batch(parent.run_id, metrics=fresh[start : start + METRICS_A_CALL])


def log_scores(parent: GridRun, task: str, split: str, scores: dict[str, float]) -> None:
    """Log the scores of a task's selected model on a split as metrics of the grid's run."""
    with report_failure(parent, f"the scores on {split}"):
        now = int(time.time() * 1000)
        points = [Metric(metric_name(f"{task}/{split} {name}"), value, now, 0) for name, value in scores.items()]
        MlflowClient(tracking_uri=parent.uri).log_batch(parent.run_id, metrics=points)


def six_digits(value: float | None) -> float | None:
    """A value with the six digits that people read; the metrics have all."""
    return None if value is None else float(f"{value:.6g}")


def row_metrics(one: Reported) -> Iterator[tuple[str, float]]:
    """The figures of a row by the names of their metrics."""
    found = {"median": one.median, "lowest": min(one.values), "highest": max(one.values), "baseline": one.baseline}
    found |= {"mean": statistics.fmean(one.values)} if one.folds > 1 else {}
    yield from (
        (metric_name(f"{one.task}/{one.name}/{name}"), value) for name, value in found.items() if value is not None
    )


def log_best(
    parent: GridRun,
    config: Finetune,
    problem: Problem,
    task_name: str,
    folder: str,
    many: bool,
    report: Callable[[str], None],
) -> None:
    """Where config.register asks for it, log a task's best model to the grid's run, compare its answers with the folder's, and register it, once.

    Raises CheckpointError when they differ.
    """
    if config.register is None:
        return
    plain = re.sub(r"[^\w-]", "_", task_name)
    name, trial = f"{config.register}-{plain}" if many else config.register, folder.rstrip("/").rsplit("/", 2)[-2]
    try:
        if (version := registered(parent, name, trial)) is None:
            logged = registry.log_tuned(folder, sample_questions(problem), parent.uri, parent.run_id, plain)
            version = registry.register(logged, name, parent.uri, {TRIAL: trial})
    except CheckpointError:
        raise
    except Exception as error:  # the model is in its folder all the same
        report(
            f"{task_name}: MLflow did not take the model {name}: {storage.first_line(error)}; it is in {folder}, and the same command registers it"
        )
        return
    report(
        f"{task_name}: registered as {version}; in this environment: MLFLOW_TRACKING_URI={shlex.quote(parent.uri)} mlflow models predict -m {shlex.quote(version)} -i FILE.csv -t csv --env-manager local"
    )


def registered(parent: GridRun, name: str, trial: str) -> str | None:
    """The version under which a trial's model of this grid is registered already."""
    found = MlflowClient(tracking_uri=parent.uri, registry_uri=parent.uri).search_model_versions(f"name='{name}'")
    mine = [int(one.version) for one in found if one.run_id == parent.run_id and one.tags.get(TRIAL) == trial]
    return f"models:/{name}/{max(mine)}" if mine else None


def sample_questions(problem: Problem) -> dict[str, list[Any]]:
    """A few development items as columns of questions to a served model."""
    items = next(iter(problem.splits.values())).items[:ASKED]
    if problem.task.kind == "spans":
        return {"question": [one.question for one in items], "context": [one.context for one in items]}
    if problem.task.kind == "tags":
        return {"text": [" ".join(one.words) for one in items]}
    second = items["second"].to_pylist()
    return {"text": items["first"].to_pylist()} | ({"second": second} if any(second) else {})
