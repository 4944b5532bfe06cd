"""The tracker: the one process that talks to MLflow, holds the run's lock, and reports progress to the driver."""

import json
import logging
import os
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

# MLflow reads this variable at its import. An actor has the environment of Ray's head, which may not set the variable.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from pipeline import storage
from pipeline.errors import ConfigError, PipelineError
from pipeline.local_files import scratch_folder
from pipeline.locations import absolute, is_url, without_login
from pipeline.train.drivers import is_gone, this_driver
from pipeline.train.failures import Failure, Failures
from pipeline.train.origin import origin

if TYPE_CHECKING:  # imports Ray, which the tracker does not need
    from pipeline.corpus.prepared import Corpus

FLUSH_SECONDS = 2.0
RETRY_SECONDS = 5.0
LAST_FLUSH_SECONDS = 60.0  # how long the end of a run waits for an unavailable server
METRICS_A_CALL = 1_000  # MLflow's limits for one call of log_batch
PARAMETERS_A_CALL = 100
LONGEST_NAME, LONGEST_DIGEST = 500, 36
"""MLflow's limits for a data set's name and digest, in characters."""
MOST_SOURCES = 100
"""Maximum sources of a corpus in a data set, because MLflow accepts 64 KB of text for them."""
DESCRIPTION = "mlflow.note.content"
"""Tag with the Markdown on the run's overview page."""
DRIVER = "driver"
"""Tag that names the process driving a run, so that a later start can tell whether that process has ended."""
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Tag of an experiment; without it, MLflow's UI may take the models for chat models, and hide the charts."""


@dataclass(frozen=True, kw_only=True)
class MlflowRun:
    """MLflow store and ids of a run."""

    uri: str
    run_id: str
    experiment_id: str | None = None
    """Part of the run page's URL; None where it was not looked up."""


def tracking_uri(given: str | None, output: str, setting: str = "tracking.uri") -> str:
    """Return the MLflow URI, with absolute paths: `given`, else MLFLOW_TRACKING_URI, else SQLite in the output folder.

    `setting` is the name of the setting that holds `given`. Raises ConfigError if the URI contains a login, or if none
    is set and the output is a URL, because SQLite needs a local disk.
    """
    uri = given or os.environ.get("MLFLOW_TRACKING_URI")
    if uri is None:
        if is_url(output):
            raise ConfigError(
                f"{setting} is not set and output ({output}) is not a local folder: "
                "start a server (mlflow server) and set MLFLOW_TRACKING_URI, "
                "or give sqlite:////a/local/mlflow.db"
            )
        uri = f"sqlite:///{storage.join(output, 'mlflow.db')}"
    if without_login(uri) != uri:
        raise ConfigError(
            f"{setting} ({without_login(uri)}) was given with a login in it, "
            "which would appear in summaries and model cards: "
            "use a server (mlflow server) and MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    prefix = "sqlite:///"
    return prefix + absolute(uri[len(prefix) :]) if uri.startswith(prefix) else uri


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
    """Continue the run `run_id` if the tracking server still has it, else create a run with parameters, tags and data
    sets.

    Also gives the status KILLED to the experiment's running runs whose driver no longer exists. Raises ConfigError,
    naming `setting`, if the server does not work.
    """
    silence_mlflow()
    try:
        if uri.startswith("sqlite:///"):
            os.makedirs(os.path.dirname(uri[len("sqlite:///") :]), exist_ok=True)
        client = MlflowClient(tracking_uri=uri)
        known = client.get_experiment_by_name(experiment)
        if known:
            _end_killed(client, known.experiment_id)
        if run_id is not None and has_run(client, run_id):
            client.set_tag(run_id, DRIVER, this_driver())  # first, or another start may end the run
            client.update_run(run_id, status="RUNNING")
            return MlflowRun(uri=uri, run_id=run_id, experiment_id=client.get_run(run_id).info.experiment_id)
        experiment_id = known.experiment_id if known else _create_experiment(client, uri, experiment)
        run = client.create_run(experiment_id, run_name=name, tags=origin() | tags | {DRIVER: this_driver()})
        entries = [Param(key, str(value)) for key, value in parameters.items()]
        for start in range(0, len(entries), PARAMETERS_A_CALL):
            client.log_batch(run.info.run_id, params=entries[start : start + PARAMETERS_A_CALL])
        if inputs:
            client.log_inputs(run.info.run_id, datasets=list(inputs))
    except Exception as error:  # of MLflow, SQLAlchemy or requests, but always about this URI
        raise ConfigError(f"{setting} ({uri}) does not work: {storage.first_line(error)}") from error
    return MlflowRun(uri=uri, run_id=run.info.run_id, experiment_id=experiment_id)


def _create_experiment(client: MlflowClient, uri: str, experiment: str) -> str:
    """Create an experiment, unless another process has just created it, and return its id."""
    try:
        return client.create_experiment(experiment, artifact_location=_artifact_location(uri), tags=KIND)
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

    The end time of such a run is the time of the last point of one of its metrics.
    """
    for run in client.search_runs([experiment_id], "attributes.status = 'RUNNING'"):
        driver = run.data.tags.get(DRIVER, "")
        if driver in stopped or is_gone(driver):
            metric = next(iter(run.data.metrics), None)
            points = client.get_metric_history(run.info.run_id, metric) if metric else []
            client.set_terminated(run.info.run_id, "KILLED", max((point.timestamp for point in points), default=None))


def end_killed(uri: str, experiment: str, stopped: Collection[str]) -> None:
    """Give the status KILLED to the experiment's running runs whose driver no longer exists or is one of `stopped`.

    Ignore an error of MLflow.
    """
    with suppress(Exception):  # of MLflow, SQLAlchemy or requests; the next start of a run tries again
        client = MlflowClient(tracking_uri=uri)
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
    if uri.startswith("sqlite:///") and not storage.exists(uri[len("sqlite:///") :]):
        return {}
    known = MlflowClient(tracking_uri=uri).search_experiments(order_by=["creation_time ASC"])
    return {experiment.experiment_id: experiment.name for experiment in known if experiment.name != "Default"}


def history(run: MlflowRun, name: str) -> list[Metric]:
    """Return a metric's points in the order of their steps.

    The `timestamp` of a point is the time at which the tracker received it, in milliseconds since 1970.
    """
    return sorted(MlflowClient(tracking_uri=run.uri).get_metric_history(run.run_id, name), key=lambda point: point.step)


def logged_points(run: MlflowRun) -> dict[str, dict[int, float]]:
    """Return metric -> step -> value of everything that a run logged.

    Raises ConfigError if the store does not work or does not have the run.
    """
    silence_mlflow()
    path = run.uri.removeprefix("sqlite:///")
    if path != run.uri and not storage.exists(path):  # MLflow would create an empty store
        raise ConfigError(f"tracking.uri ({run.uri}) does not exist: name the MLflow store that the run logged to")
    try:
        client = MlflowClient(tracking_uri=run.uri)
        return {
            name: {point.step: point.value for point in client.get_metric_history(run.run_id, name)}
            for name in client.get_run(run.run_id).data.metrics
        }
    except Exception as error:  # as in open_run
        raise ConfigError(
            f"tracking.uri ({run.uri}) does not have run {run.run_id}: {storage.first_line(error)}"
        ) from error


def _artifact_location(uri: str) -> str | None:
    """Return a folder for artifacts next to the SQLite file; None for a server, which has its own.

    By default, MLflow would make a folder mlruns in the working directory.
    """
    return f"file://{os.path.dirname(uri[len('sqlite:///') :])}/mlartifacts" if uri.startswith("sqlite:///") else None


def silence_mlflow() -> None:
    """Silence the logs of MLflow and Alembic, and limit MLflow's retries, which would take minutes.

    The tracker keeps metrics and retries by itself.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


class Tracker:
    """Send metrics to MLflow in the background, each (metric, step) once; buffer them while the server is unavailable.

    Runs in an actor on the driver's node. The actor's name is the run's lock, and `owner` names its holder.
    """

    def __init__(self, owner: str) -> None:
        self.owner_name = owner
        self.failures = Failures()
        self.latest: tuple[int, dict[str, float]] | None = None
        """Newest training metrics, with their step; None before the first."""
        self.outcome: dict[str, Any] | None = None
        """Rank 0's summary; None before the end."""
        self.messages: list[str] = []
        self.client: Any = None
        """The MlflowClient; None before `start`."""
        self.run_id = ""
        self.run_name = ""
        self.pending: list[Metric] = []
        self.points: dict[str, dict[int, float]] = {}
        """Metric -> step -> value of all points that MLflow has or will get."""
        self.pictures_due = threading.Event()
        """Set when a checkpoint is written, to redraw the pictures in the background."""
        self.drawing: str | None = None
        """Error of the last attempt to log pictures; None if it succeeded."""
        self.lock = threading.Lock()
        self.sending = threading.Lock()
        self.problem: str | None = None
        """Error of the last attempt to send to MLflow; None if it succeeded."""
        self.stopping = threading.Event()
        self.sender: threading.Thread | None = None

    def owner(self) -> str:
        """Return the job and process that hold the run's lock."""
        return self.owner_name

    def start(self, run: MlflowRun) -> None:
        """Start sending to an MLflow run, except for points that it already has. Raises ConfigError if MLflow fails."""
        silence_mlflow()
        try:
            self.client, self.run_id = MlflowClient(tracking_uri=run.uri), run.run_id
            mlflow_run = self.client.get_run(run.run_id)
            self.run_name = mlflow_run.info.run_name
            for key in mlflow_run.data.metrics:
                self.points[key] = {
                    metric.step: metric.value for metric in self.client.get_metric_history(run.run_id, key)
                }
        except Exception as error:  # as in open_run
            raise ConfigError(
                f"tracking.uri ({run.uri}) does not work: {storage.first_line(error)}; "
                "repair it or move it away, and the same command continues"
            ) from error
        self.sender = threading.Thread(target=self._send_forever, daemon=True)
        self.sender.start()

    def missing_losses(self, steps: int, every: int) -> int:
        """Return how many logged steps have no loss in MLflow; they are the multiples of `every` up to `steps`."""
        return sum(step not in self.points.get("train/loss", {}) for step in range(every, steps + 1, every))

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Buffer the metrics of a step, except for those that MLflow has for this step; return at once."""
        now = int(time.time() * 1000)
        if "train/loss" in metrics:
            self.latest = (step, metrics)
        with self.lock:
            fresh = {key: float(value) for key, value in metrics.items() if step not in self.points.get(key, {})}
            for key, value in fresh.items():
                self.points.setdefault(key, {})[step] = value
            self.pending += [Metric(key, value, now, step) for key, value in fresh.items()]

    def tag(self, tags: dict[str, str]) -> None:
        """Set tags of the run; if the server is unavailable, they are lost, and a message says so."""
        try:
            for key, value in tags.items():
                self.client.set_tag(self.run_id, key, value)
        except Exception as error:  # a lost tag must not end the run
            self.say(f"the tags {sorted(tags)} could not be logged to MLflow: {storage.first_line(error)}")

    def add_pictures(self, pictures: dict[str, bytes]) -> None:
        """Log files by artifact path; if the server is unavailable, they are lost, and a message says so."""
        try:
            with scratch_folder("pictures") as folder:
                for path, content in pictures.items():
                    file = folder / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)
                    self.client.log_artifact(self.run_id, str(file), os.path.dirname(path))
        except Exception as error:  # a lost picture must not end the run
            self.say(f"MLflow did not take the pictures {sorted(pictures)}: {storage.first_line(error)}")

    def say(self, message: str) -> None:
        """Queue a line for the driver to print."""
        with self.lock:
            self.messages.append(message)

    def take_messages(self) -> list[str]:
        """Return the lines queued since the last call."""
        with self.lock:
            messages, self.messages = self.messages, []
        return messages

    def begin(self, phase: int) -> None:
        """Record that the workers start in the phase with first step `phase`."""
        if line := self.failures.begin(phase):
            self.say(line)

    def fail(self, failure: Failure) -> None:
        """Record a worker's error, and queue a message if it is new."""
        if line := self.failures.add(failure, self.latest[0] if self.latest else 0):
            self.say(line)

    def failure(self) -> PipelineError | None:
        """Return the error that ends the run; None if there is none."""
        return self.failures.error

    def flush(self) -> None:
        """Send buffered metrics, unless the last attempt to send failed; request new pictures."""
        self.pictures_due.set()
        if self.problem is None:
            self._send()

    def progress(self) -> tuple[int, dict[str, float]] | None:
        """Return the newest training metrics with their step; None before the first."""
        return self.latest

    def result(self, summary: dict[str, Any]) -> None:
        """Store the summary from rank 0."""
        self.outcome = summary

    def summary(self) -> dict[str, Any] | None:
        """Return the summary from rank 0; None before the end."""
        return self.outcome

    def finish(self, status: str) -> str | None:
        """Send what is left and end the run with `status` (FINISHED, FAILED or KILLED).

        Return a line about what MLflow did not take; None if it took everything.
        """
        self.stopping.set()
        if self.sender is None:
            return None
        self.sender.join()
        deadline = time.monotonic() + LAST_FLUSH_SECONDS
        while not self._send() and time.monotonic() < deadline:
            time.sleep(RETRY_SECONDS)
        if not self.pending:
            self._draw()
            try:
                self.client.set_terminated(self.run_id, status)
            except Exception as error:  # reported below
                self.problem = storage.first_line(error)
        else:
            return f"MLflow is unavailable ({self.problem}): {len(self.pending)} points are lost"
        return f"the run's end could not be logged to MLflow: {self.problem}" if self.problem else None

    def _send_forever(self) -> None:
        while not self.stopping.is_set():
            sent = self._send()
            if sent and self.pictures_due.is_set():
                self.pictures_due.clear()
                self._draw()
            self.stopping.wait(FLUSH_SECONDS if sent else RETRY_SECONDS)

    def _draw(self) -> None:
        """Draw pictures of all points so far and log them in place of earlier ones; report only the first failure."""
        from pipeline.train.pictures import DPI, pictures  # not before: a run should start without matplotlib

        with self.lock:
            points = {key: dict(values) for key, values in self.points.items()}
        try:
            for path, figure in pictures(self.run_name, points).items():
                self.client.log_figure(self.run_id, figure, path, save_kwargs={"dpi": DPI})
            self.drawing = None
        except Exception as error:  # training continues without pictures
            if self.drawing is None:
                self.say(f"the pictures could not be logged to MLflow: {storage.first_line(error)}")
            self.drawing = storage.first_line(error)

    def _send(self) -> bool:
        """Send buffered metrics; if the server does not accept them, keep them and return False."""
        with self.sending:
            return self._send_batches()

    def _send_batches(self) -> bool:
        with self.lock:
            batch = self.pending[:METRICS_A_CALL]
        if not batch:
            return True
        try:
            self.client.log_batch(self.run_id, metrics=batch)
        except Exception as error:  # kept and retried: training continues meanwhile
            if self.problem is None:
                self.say(f"MLflow does not answer, so points are kept and sent later: {storage.first_line(error)}")
            self.problem = storage.first_line(error)
            return False
        with self.lock:
            del self.pending[: len(batch)]
            self.problem = None
        return self._send_batches()
