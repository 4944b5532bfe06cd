"""Track any trainer of Ray Train in MLflow: one MLflow run over all starts, with each point once."""

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import ray
import ray.train
from ray.actor import ActorHandle
from ray.train import Checkpoint, RunConfig, UserCallback
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.files.locations import absolute
from pipeline.reporting import print_line
from pipeline.tracking.points import Points

if TYPE_CHECKING:
    from pipeline.tracking.runs import MlflowRun

RECORD = "mlflow.json"
"""File in the trainer's run folder with the id of its MLflow run."""
NOT_IN_NAMES = re.compile(r"[^\w./: -]")
"""Characters that MLflow does not accept in names of metrics. It would refuse all points that are sent with them."""


class _Reports(UserCallback):
    """Send what the first worker reports to the tracker, in Ray Train's controller. Ray Train also keeps no more."""

    def __init__(self, points: Points) -> None:
        self.points = points

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        self.points.log(*reported(metrics[0]))
        self.points.flush()  # before the next checkpoint, after which this step is not trained again
        for line in ray.get(self.points.tracker.take_messages.remote()):
            print_line(line)


def reported(metrics: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
    """Return the step of reported metrics, and those that are numbers. Raises ConfigError without a step."""
    if not isinstance(step := metrics.get("step"), Integral):
        raise ConfigError(
            f'ray.train.report got "step" {step!r}, but MLflow needs the number of the step: '
            'report {"step": 10, "loss": 2.5}'
        )
    numbers = {name: float(value) for name, value in metrics.items() if name != "step" and isinstance(value, Real)}
    return int(step), {NOT_IN_NAMES.sub("_", name): value for name, value in numbers.items()}


def kept_reports(folder: str) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield what was reported with the checkpoints that a run folder still has; those without a step are skipped."""
    try:
        result = ray.train.Result.from_path(folder)
    except RuntimeError:  # the run has not committed a checkpoint
        return
    for _, metrics in result.best_checkpoints or ():
        if isinstance(metrics.get("step"), Integral):  # not from before the run was tracked
            yield reported(metrics)


def continued_run(folder: str, uri: str, experiment: str, name: str, parameters: Mapping[str, Any]) -> "MlflowRun":
    """Open the MLflow run of a run folder: the one of its earlier starts, if the store has it, else a new one."""
    from pipeline.tracking.runs import open_run  # here: Ray Train's controller and workers need no MLflow

    record = storage.join(folder, RECORD)
    known = (storage.read_object(record) or {}).get("run_id")
    run = open_run(uri, experiment, name, known, dict(parameters), {}, setting="uri")
    storage.write_json(record, {"run_id": run.run_id})
    return run


@contextmanager
def tracked(
    run_config: RunConfig, *, experiment: str = "ray-train", uri: str | None = None, parameters: Mapping[str, Any] = {}
) -> Generator[RunConfig]:
    """Track the training inside this context in MLflow, and yield the RunConfig to pass to its trainer.

    Workers report {"step": …} with other numbers; those of the first worker are logged. Started again, also after a
    kill, a RunConfig with the same name and storage_path continues the same MLflow run. Steps that are trained again
    are not logged again, and what a killed driver had not sent is logged from its checkpoints or trained again. Only if
    MLflow was away at the kill, points between checkpoints may be missing.

    `uri` is as in `tracking_uri`; `parameters` are logged when the MLflow run is created. Raises ConfigError if they
    cannot be used.
    """
    from pipeline.tracking.runs import tracking_uri
    from pipeline.tracking.tracker import Tracker

    if run_config.storage_filesystem is not None:
        raise ConfigError(
            f"storage_filesystem ({run_config.storage_filesystem!r}) is not read by tracked: leave it out, and give "
            "storage_path as a local path, s3:// or gs://"
        )
    output, name = absolute(str(run_config.storage_path)), str(run_config.name)
    folder = storage.join(output, name)
    mlflow = continued_run(folder, tracking_uri(uri, output, "uri"), experiment, name, parameters)
    if not ray.is_initialized():
        ray.init()
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    tracker: ActorHandle = (
        ray.remote(Tracker).options(num_cpus=0, scheduling_strategy=here, max_concurrency=4).remote(folder)
    )
    points, status = Points(tracker), "FAILED"
    try:
        ray.get(tracker.start.remote(mlflow))
        for step, metrics in kept_reports(folder):
            points.log(step, metrics)
        points.flush()
        yield replace(run_config, callbacks=[*(run_config.callbacks or ()), _Reports(Points(tracker))])
        status = "FINISHED"
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or SIGTERM (ray job stop), by way of Ray
        status = "KILLED"
        raise
    finally:
        if lost := ray.get(tracker.finish.remote(status)):
            print_line(lost)
        ray.kill(tracker)
