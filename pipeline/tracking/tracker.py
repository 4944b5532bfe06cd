"""The tracker: the process that sends a run's metrics to MLflow, holds the run's lock, and collects messages."""

import os
import threading
import time
from typing import Any

from pipeline.errors import ConfigError, PipelineError, TakenOver
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.tracking.failures import Failure, Failures
from pipeline.tracking.runs import METRICS_A_CALL, Metric, MlflowRun, open_client, silence_mlflow

FLUSH_SECONDS = 2.0
RETRY_SECONDS = 5.0
LAST_FLUSH_SECONDS = 60.0  # maximum wait for an unavailable server at the end of a run


class Tracker:
    """Send metrics to MLflow in the background, each (metric, step) once; buffer them while the server is unavailable.

    Runs in an actor on the driver's node. The actor's name is the run's lock, and `owner` names its holder.
    """

    def __init__(self, owner: str) -> None:
        self.owner_name = owner
        self.failures = Failures()
        self.latest: tuple[int, dict[str, float]] | None = None
        """Newest training metrics, with their step; None before the first metrics."""
        self.outcome: dict[str, Any] | None = None
        """Rank 0's summary; None before the end."""
        self.messages: list[str] = []
        self.client: Any = None
        """The MlflowClient; None before `start`."""
        self.run_id = ""
        self.run_name = ""
        self.every: str | None = None
        """The tracking.every that the MLflow run began with; None if it is not known."""
        self.pending: list[Metric] = []
        self.points: dict[str, dict[int, float]] = {}
        """Metric -> step -> value, for all points that MLflow has and all points to be sent."""
        self.pictures_due = threading.Event()
        """Set when a checkpoint is written, to redraw the pictures in the background."""
        self.drawing: str | None = None
        """Error of the last attempt to log pictures; None if it succeeded."""
        self.lock = threading.Lock()
        self.sending = threading.Lock()
        self.problem: str | None = None
        """Error of the last attempt to send to MLflow; None if it succeeded."""
        self.stopping = threading.Event()
        self.taken_over = False
        """Whether another driver has the run, so that its MLflow run is left to that driver."""
        self.sender: threading.Thread | None = None

    def owner(self) -> str:
        """Return the job and process that hold the run's lock."""
        return self.owner_name

    def start(self, run: MlflowRun) -> None:
        """Start to send points to an MLflow run, except for points that it already has.

        Raises ConfigError if MLflow fails.
        """
        silence_mlflow()
        try:
            self.client, self.run_id = open_client(run.uri), run.run_id
            mlflow_run = self.client.get_run(run.run_id)
            self.run_name = mlflow_run.info.run_name
            self.every = mlflow_run.data.params.get("tracking.every")
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
        """Return how many logged steps have no loss in MLflow: multiples of `every` up to `steps`, but none before the
        first that it has, because an MLflow run may begin there. 0 if the MLflow run began with another `every`.
        """
        known = self.points.get("train/loss", {})
        if self.every not in (None, str(every)):
            return 0
        first = -(-min(known, default=every) // every) * every
        return sum(step not in known for step in range(first, steps + 1, every))

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Buffer the metrics of a step, except for metrics that were logged for this step before; return at once."""
        now = int(time.time() * 1000)
        if "train/loss" in metrics:
            self.latest = (step, metrics)
        with self.lock:
            fresh = {key: float(value) for key, value in metrics.items() if step not in self.points.get(key, {})}
            for key, value in fresh.items():
                self.points.setdefault(key, {})[step] = value
            self.pending += [Metric(key, value, now, step) for key, value in fresh.items()]

    def tag(self, tags: dict[str, str]) -> None:
        """Set tags of the run. If the server is unavailable, the tags are lost, and a message says so."""
        try:
            for key, value in tags.items():
                self.client.set_tag(self.run_id, key, value)
        except Exception as error:  # a lost tag must not end the run
            self.say(f"the tags {sorted(tags)} could not be logged to MLflow: {storage.first_line(error)}")

    def add_pictures(self, pictures: dict[str, bytes]) -> None:
        """Log pictures by artifact path. If the server is unavailable, they are lost, and a message says so."""
        try:
            with scratch_folder("pictures") as folder:
                for path, content in pictures.items():
                    file = folder / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)
                    self.client.log_artifact(self.run_id, str(file), os.path.dirname(path))
        except Exception as error:  # a lost picture must not end the run
            self.say(f"the pictures {sorted(pictures)} could not be logged to MLflow: {storage.first_line(error)}")

    def say(self, message: str) -> None:
        """Queue a line for the driver to print."""
        with self.lock:
            self.messages.append(message)

    def take_messages(self) -> list[str]:
        """Return the lines queued since the last call."""
        with self.lock:
            messages, self.messages = self.messages, []
        return messages

    def begin(self) -> None:
        """Record that the workers start."""
        if line := self.failures.begin():
            self.say(line)

    def fail(self, failure: Failure) -> None:
        """Record an error of a worker or of the driver, and queue a message if it is new."""
        self.taken_over |= isinstance(failure.known, TakenOver)
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
        """Return the newest training metrics with their step; None before the first metrics."""
        return self.latest

    def result(self, summary: dict[str, Any]) -> None:
        """Store the summary from rank 0."""
        self.outcome = summary

    def summary(self) -> dict[str, Any] | None:
        """Return the summary from rank 0; None before the end."""
        return self.outcome

    def finish(self, status: str) -> str | None:
        """Send all buffered metrics and end the MLflow run with `status` (FINISHED, FAILED or KILLED).

        Return a message if points are lost or the end could not be logged, else None.
        """
        self.stopping.set()
        if self.sender is None or self.taken_over:
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
        """Draw pictures of all points so far and log them in place of the earlier pictures.

        A failure is reported, unless the attempt before it failed too.
        """
        from pipeline.tracking.curves import DPI, pictures  # imported here, so that runs start without matplotlib

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
            return self.taken_over or self._send_batches()

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
