"""Runs in MLflow: find, open, continue and end them, and read their points."""

import json
import logging
import os
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

# MLflow reads this variable when it is imported. An actor has the environment of Ray's head, which may lack it.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.files.locations import LOCAL_URL, SQLITE, absolute, is_url, sqlite_file, sqlite_uri, without_login
from pipeline.files.locks import locked_name
from pipeline.tracking.drivers import is_gone, this_driver
from pipeline.tracking.origin import origin

if TYPE_CHECKING:  # this import loads Ray, which this module does not need
    from pipeline.corpus.prepared import Corpus

ARTIFACTS = "mlartifacts"
"""Folder of artifacts, next to the SQLite file."""
ARTIFACT_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Tables and columns of MLflow 3 that hold absolute URIs of artifacts."""
METRICS_A_CALL = 1_000  # MLflow's limits for one call of log_batch
PARAMETERS_A_CALL = 100
LONGEST_NAME, LONGEST_DIGEST = 500, 36
"""MLflow's limits for a data set's name and digest, in characters."""
MOST_SOURCES = 100
"""Maximum number of sources that a data set lists; MLflow accepts at most 64 KB of text for the list."""
DESCRIPTION = "mlflow.note.content"
"""Tag with the Markdown on the run's overview page."""
DRIVER = "driver"
"""Tag with the name of the process that drives a run. A later start can tell whether this process has ended."""
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Tag of an experiment. Without this tag, MLflow's UI may take the models for chat models and hide the charts."""


@dataclass(frozen=True, kw_only=True)
class MlflowRun:
    """MLflow store and ids of a run."""

    uri: str
    run_id: str
    experiment_id: str | None = None
    """Part of the URL of the run's page; None if it is not known."""


def tracking_uri(given: str | None, output: str, setting: str = "tracking.uri") -> str:
    """Return the MLflow URI, with absolute paths: `given`, else MLFLOW_TRACKING_URI, else SQLite in the output folder.

    `setting` is the name of the setting that holds `given`. Raises ConfigError if the URI contains a login, or if no
    URI is set and the output is a URL (SQLite needs a local disk).
    """
    uri = given or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        if is_url(output):
            raise ConfigError(
                f"{setting} is not set and output ({output}) is not a local folder: "
                "start a server (mlflow server) and set MLFLOW_TRACKING_URI, "
                "or give sqlite:////a/local/mlflow.db"
            )
        uri = sqlite_uri(storage.join(output, "mlflow.db"))
    if without_login(uri) != uri:
        raise ConfigError(
            f"{setting} ({without_login(uri)}) was given with a login in it, "
            "which would appear in summaries and model cards: "
            "use a server (mlflow server) and MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    path, (_, mark, options) = sqlite_file(uri), uri.partition("?")
    return uri if path is None else f"{sqlite_uri(absolute(path))}{mark}{options}"


def is_missing(uri: str) -> bool:
    """Return whether a URI names a SQLite file that does not exist. MLflow would create it when it opens the URI."""
    path = sqlite_file(uri)
    return path is not None and not storage.exists(path)


def open_run(
    uri: str,
    experiment: str,
    name: str,
    run_id: str | None,
    parameters: dict[str, Any],
    tags: dict[str, str],
    inputs: Sequence[DatasetInput] = (),
    setting: str = "tracking.uri",
) -> MlflowRun:
    """Continue the run `run_id` if the tracking server still has it; otherwise, create a run.

    A new run gets the parameters, tags and data sets. Running runs of the experiment whose driver no longer exists get
    the status KILLED. Raises ConfigError, naming `setting`, if the server does not work.
    """
    silence_mlflow()
    try:
        client = open_client(uri)
        known = client.get_experiment_by_name(experiment)
        if known:
            if known.lifecycle_stage == "deleted":  # in MLflow's UI; a name cannot be given again before it is restored
                client.restore_experiment(known.experiment_id)
            _end_killed(client, known.experiment_id)
        if run_id is not None and has_run(client, run_id):
            # Set the driver first, because the start of another run ends each RUNNING run whose driver is gone.
            client.set_tag(run_id, DRIVER, this_driver())
            client.update_run(run_id, status="RUNNING")
            return MlflowRun(uri=uri, run_id=run_id, experiment_id=client.get_run(run_id).info.experiment_id)
        experiment_id = known.experiment_id if known else _create_experiment(client, uri, experiment)
        run = client.create_run(experiment_id, run_name=name, tags=origin() | tags | {DRIVER: this_driver()})
        entries = [Param(key, str(value)) for key, value in parameters.items()]
        for start in range(0, len(entries), PARAMETERS_A_CALL):
            client.log_batch(run.info.run_id, params=entries[start : start + PARAMETERS_A_CALL])
        if inputs:
            client.log_inputs(run.info.run_id, datasets=list(inputs))
    except Exception as error:  # an error of MLflow, SQLAlchemy or requests, always about this URI
        raise ConfigError(f"{setting} ({uri}) does not work: {storage.first_line(error)}") from error
    return MlflowRun(uri=uri, run_id=run.info.run_id, experiment_id=experiment_id)


def open_client(uri: str) -> MlflowClient:
    """Return a client of the tracking server or store; a missing SQLite file is created.

    If the SQLite file was moved together with its artifacts, its records are changed to the artifacts' new place. In a
    folder that cannot be written to, such as another user's, the file is only read.
    """
    path = sqlite_file(uri)
    if path is None or (storage.exists(path) and not os.access(os.path.dirname(path), os.W_OK, effective_ids=True)):
        return MlflowClient(tracking_uri=uri)
    # Two processes that create the tables of one file at the same time both fail.
    with locked_name(path, wait=True):
        client = MlflowClient(tracking_uri=uri)
        if (encoded := uri.removeprefix(SQLITE).partition("?")[0]) != path:
            with suppress(OSError):  # MLflow has made a folder of the name that is not decoded
                os.removedirs(os.path.dirname(encoded))
        _follow_moved_artifacts(path)
        return client


def _follow_moved_artifacts(path: str) -> None:
    """Replace the recorded folder of artifacts by the one next to the SQLite file, unless only the recorded one exists.

    MLflow records absolute URIs and has no call that changes them. Without this, it would make the old folder again.
    """
    now = _artifact_location(path)
    are_here = os.path.isdir(os.path.join(os.path.dirname(path), ARTIFACTS))
    with closing(sqlite3.connect(path)) as database, database:
        for (before,) in database.execute("SELECT DISTINCT artifact_location FROM experiments").fetchall():
            folder = unquote(before.removeprefix(LOCAL_URL))
            is_ours = before.startswith(LOCAL_URL) and os.path.basename(folder) == ARTIFACTS
            if before == now or not is_ours or (os.path.isdir(folder) and not are_here):
                continue
            for table, column in ARTIFACT_COLUMNS:
                database.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column} || '/', 1, ?) = ?",
                    [now, len(before) + 1, len(before) + 1, f"{before}/"],
                )


def _create_experiment(client: MlflowClient, uri: str, experiment: str) -> str:
    """Create an experiment, unless another process has just created it, and return its id."""
    try:
        path = sqlite_file(uri)
        location = None if path is None else _artifact_location(path)  # a server has its own
        return client.create_experiment(experiment, artifact_location=location, tags=KIND)
    except MlflowException as error:
        known = client.get_experiment_by_name(experiment)
        if error.error_code != "RESOURCE_ALREADY_EXISTS" or known is None:
            raise
        return known.experiment_id


def corpus_inputs(corpus: "Corpus") -> list[DatasetInput]:
    """Return the training and held-out parts of a corpus as MLflow data sets: location, sources, fingerprint."""
    sources = [without_login(location) for location in corpus.sources]
    name = ", ".join(location.split("::")[0].rstrip("/").rsplit("/", 1)[-1] for location in sources) or "corpus"
    folder = without_login(corpus.folder)
    source = {"uri": folder, "sources": sources[:MOST_SOURCES]}
    parts = {"training": ("", corpus.train), "evaluation": (" (held-out)", corpus.heldout)}
    return [
        DatasetInput(
            Dataset(
                name=name[: LONGEST_NAME - len(suffix)] + suffix,
                digest=corpus.fingerprint[:LONGEST_DIGEST],
                source_type=urlsplit(folder).scheme or "local",
                source=json.dumps(source),
                profile=json.dumps(
                    {"windows": len(windows), "characters": sum(window.characters for window in windows)}
                ),
            ),
            [InputTag("mlflow.data.context", context)],
        )
        for context, (suffix, windows) in parts.items()
        if windows
    ]


def _end_killed(client: MlflowClient, experiment_id: str, stopped: Collection[str] = ()) -> None:
    """Give the status KILLED to the experiment's RUNNING runs whose driver no longer exists or is one of `stopped`.

    The end time of such a run is the time of the last point of its first metric.
    """
    for run in client.search_runs([experiment_id], "attributes.status = 'RUNNING'"):
        driver = run.data.tags.get(DRIVER, "")
        if driver in stopped or is_gone(driver):
            metric = next(iter(run.data.metrics), None)
            points = client.get_metric_history(run.info.run_id, metric) if metric else []
            client.set_terminated(run.info.run_id, "KILLED", max((point.timestamp for point in points), default=None))


def end_killed(uri: str, experiment: str, stopped: Collection[str]) -> None:
    """Give the status KILLED to the experiment's running runs whose driver no longer exists or is one of `stopped`.

    Errors of MLflow are ignored.
    """
    with suppress(Exception):  # errors of MLflow, SQLAlchemy or requests; the next start of a run tries again
        client = open_client(uri)
        if known := client.get_experiment_by_name(experiment):
            _end_killed(client, known.experiment_id, stopped)


def has_run(client: MlflowClient, run_id: str) -> bool:
    """Return whether the tracking server has the run and has not deleted it."""
    try:
        return client.get_run(run_id).info.lifecycle_stage == "active"
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise


def experiments(uri: str) -> dict[str, str]:
    """Return id -> name of a store's experiments, oldest first, without MLflow's `Default`.

    Empty if the SQLite file does not exist yet.
    """
    silence_mlflow()
    if is_missing(uri):
        return {}
    known = open_client(uri).search_experiments(order_by=["creation_time ASC"])
    return {experiment.experiment_id: experiment.name for experiment in known if experiment.name != "Default"}


def history(run: MlflowRun, name: str) -> list[Metric]:
    """Return a metric's points in the order of their steps.

    The `timestamp` of a point is the time at which the tracker received it, in milliseconds since 1970.
    """
    return sorted(open_client(run.uri).get_metric_history(run.run_id, name), key=lambda point: point.step)


def logged_points(run: MlflowRun) -> dict[str, dict[int, float]]:
    """Return metric -> step -> value of everything that a run logged.

    Raises ConfigError if the store does not work or does not have the run.
    """
    silence_mlflow()
    if is_missing(run.uri):
        raise ConfigError(f"tracking.uri ({run.uri}) does not exist: name the MLflow store that the run logged to")
    try:
        client = open_client(run.uri)
        return {
            name: {point.step: point.value for point in client.get_metric_history(run.run_id, name)}
            for name in client.get_run(run.run_id).data.metrics
        }
    except Exception as error:  # as in open_run
        raise ConfigError(
            f"tracking.uri ({run.uri}) does not have run {run.run_id}: {storage.first_line(error)}"
        ) from error


def _artifact_location(path: str) -> str:
    """Return the URI of the folder for artifacts next to a SQLite file.

    Without this folder, MLflow would create a folder mlruns in the working directory.
    """
    return f"{LOCAL_URL}{quote(os.path.dirname(path))}/{ARTIFACTS}"


def silence_mlflow() -> None:
    """Silence the logs of MLflow and Alembic, and limit MLflow's retries.

    MLflow's own retries would take minutes. They are not needed, because the tracker keeps metrics and retries.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
