"""Run TorchTrainer around worker.py: the run's lock, the stream at every (re)start, restarts, and one-line errors."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import ray
from ray.actor import ActorHandle
from ray.train import ControllerError, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import Phase
from pipeline.corpus.order import cursor_for_phase, offset, rows_of_round
from pipeline.corpus.stream import Stream, build_stream, bytes_ahead, dealing, settings_for_phase
from pipeline.errors import ConfigError, PipelineError
from pipeline.files import storage
from pipeline.on_ray.cluster import NAMESPACE, WorkerResources, is_loopback, keep_logs, node_groups, stream_cpus
from pipeline.reporting import Report
from pipeline.saved import checkpoints
from pipeline.tracking.failures import error_line, pipeline_cause
from pipeline.train import checkpoint
from pipeline.train.job import Job
from pipeline.train.later_stream import LaterStream
from pipeline.train.process_group import LoopbackConfig
from pipeline.train.worker import STREAM, run, stream_of

if TYPE_CHECKING:
    from pipeline.tracking.runs import MlflowRun

POLL_SECONDS = 1.0
# The user is told if the workers are silent for longer than SILENT_SECONDS, and for longer than SILENT_INTERVALS times
# the longest silence so far. The second limit is needed because some steps take minutes.
SILENT_SECONDS = 60.0
SILENT_INTERVALS = 3
# Attempts, of one minute each, to start a fixed number of workers; unlimited if nodes may still join.
START_ATTEMPTS = 60
# An elastic group first requests as many workers as before; after this time it starts on the nodes that are left.
ELASTIC_START_SECONDS = 5
RESERVATION = "reservation.json"  # file in the run's folder
COORDINATOR_SECONDS = 5.0  # maximum wait for an answer of Ray's autoscaling coordinator
UNLOCK_SECONDS = 10.0  # maximum wait until Ray has ended the actors of a killed driver
RESIZE_SECONDS = 5.0  # between checks for new nodes


@contextmanager
def locked_tracker(folder: str) -> Generator[ActorHandle]:
    """Yield the run's tracker, an actor on this node that ends with this driver. The actor's name is the run's lock.

    Raises ConfigError if another driver holds the lock.
    """
    from pipeline.tracking.tracker import Tracker  # here: Ray Train's controller needs this module, not MLflow

    name = _lock_name(folder)
    context = ray.get_runtime_context()
    owner = f"job {context.get_job_id()}, process {os.getpid()}"
    here = NodeAffinitySchedulingStrategy(context.get_node_id(), soft=False)
    try:
        tracker = (
            ray.remote(Tracker)
            .options(name=name, namespace=NAMESPACE, num_cpus=0, scheduling_strategy=here, max_concurrency=4)
            .remote(owner)
        )
        ray.get(tracker.owner.remote())
    except ValueError as error:
        holder = ray.get(ray.get_actor(name, namespace=NAMESPACE).owner.remote())
        raise ConfigError(
            f"run {folder} is being trained already by {holder}; wait for it, stop it (ray job stop), "
            "or choose another --name"
        ) from error
    try:
        yield tracker
    finally:
        ray.kill(tracker)


def _lock_name(folder: str) -> str:
    """Return the name of a run's tracker."""
    return f"run:{folder}"


def wait_until_unlocked(folder: str) -> None:
    """Wait for at most UNLOCK_SECONDS until the tracker of a run has ended, after the run's driver was killed."""
    deadline = time.monotonic() + UNLOCK_SECONDS
    with suppress(ValueError, ray.exceptions.RayError):  # ValueError: there is no such actor
        while time.monotonic() < deadline:
            ray.get_actor(_lock_name(folder), namespace=NAMESPACE)
            time.sleep(UNLOCK_SECONDS / 100)


@contextmanager
def tracked(
    tracker: ActorHandle,
    mlflow: "MlflowRun",
    report: Report,
    show: Callable[[int, dict[str, float]], None],
) -> Generator[None]:
    """Track the training inside this context in an MLflow run, and end the MLflow run as FINISHED, FAILED or KILLED.

    `report` gets lines for people, and `show` gets each new (step, metrics). Both are called from another thread.
    """
    try:
        ray.get(tracker.start.remote(mlflow))
    except ray.exceptions.RayTaskError as error:
        if known := pipeline_cause(error):
            raise known from error
        raise
    status, stop = "FAILED", threading.Event()
    watcher = threading.Thread(target=watch, args=(tracker, stop, report, show), daemon=True)
    watcher.start()
    try:
        yield
        status = "FINISHED"
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or SIGTERM (ray job stop) by way of Ray
        status = "KILLED"
        raise
    finally:
        stop.set()
        watcher.join()
        if lost := ray.get(tracker.finish.remote(status)):
            report(lost)


def fit(job: Job, resources: WorkerResources) -> dict[str, Any]:
    """Train a job to its end and return rank 0's summary.

    Raises PipelineError with a one-line message; if a worker raised a PipelineError, that error is raised again.
    """
    interrupt_handler = signal.getsignal(signal.SIGINT)
    variables = train_environment(job.config)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        trainer = _trainer(job, resources)
        if job.config.worker_range.elastic:
            take_reservation(job.folder, f"train-{trainer.train_run_context.run_id}")
        trainer.fit()
    except TrainingFailedError as error:
        raise _plain_error(error, job) from error
    except SystemExit as error:  # Ray turns Ctrl-C into an exit with code 0, which would mean a finished run
        raise KeyboardInterrupt from error
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt_handler)  # Ray leaves its own handler installed
    return ray.get(job.tracker.summary.remote())


def take_reservation(folder: str, requester: str) -> None:
    """Cancel the cluster reservation that the run's previous driver made, and record `requester` as the new holder.

    Without the cancellation, Ray reserves the nodes of a killed driver's elastic group for three minutes. During that
    time, the next driver of the run finds no free node.
    """
    record = storage.join(folder, RESERVATION)
    if storage.exists(record):
        # The cluster may have no coordinator, or may have lost the coordinator's node. Both are ignored: either the
        # nodes are free, or the workers wait until the reservation ends.
        with suppress(ValueError, KeyError, ray.exceptions.RayError):
            coordinator = ray.get_actor("AutoscalingCoordinator", namespace="AutoscalingCoordinator")
            ray.get(
                coordinator.cancel_request.remote(requester_id=storage.read_json(record)["requester"]),
                timeout=COORDINATOR_SECONDS,
            )
    storage.write_json(record, {"requester": requester})


def train_environment(config: Pretrain) -> dict[str, str]:
    """Return the driver's environment variables for Ray Train.

    They set the timeout for hung workers and, in elastic runs, the time to wait for lost nodes.
    """
    start = (
        {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(ELASTIC_START_SECONDS)} if config.worker_range.elastic else {}
    )
    return start | {"RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": str(config.placement.hang_seconds)}


def _newest_state(job: Job) -> checkpoint.State:
    """Return the state of the newest intact checkpoint; the initial state if there is no checkpoint."""
    folder = checkpoints.newest_sound(job.folder, lambda message: None)
    return checkpoint.read_state(folder) if folder else checkpoint.State()


def _trainer(job: Job, resources: WorkerResources) -> TorchTrainer:
    """Return the TorchTrainer that continues from the newest intact checkpoint to the end of the run."""
    config = job.config
    own_cpus = config.placement.data_cpus or math.inf
    cpus = min(own_cpus, stream_cpus(resources, config.worker_range, node_groups(config.placement)))
    workers = config.worker_range
    group = LoopbackConfig if is_loopback(ray.util.get_node_ip_address()) else TorchConfig
    system, path = storage.filesystem(storage.join(config.output, "ray"))
    return TorchTrainer(
        run,
        train_loop_config={"job": job},
        datasets=_streams(job, min(1.0, own_cpus)),
        dataset_config=dealing(stream_bytes(config), cpus),
        scaling_config=ScalingConfig(
            num_workers=(workers.least, workers.most) if workers.elastic else workers.most,
            use_gpu=resources.gpu,
            resources_per_worker=resources.to_ray(),
            elastic_resize_monitor_interval_s=RESIZE_SECONDS,
        ),
        torch_config=group(backend="cpu:gloo,cuda:nccl" if resources.gpu else "gloo"),
        run_config=RunConfig(
            name=str(config.name),
            storage_path=path,
            storage_filesystem=system,
            failure_config=FailureConfig(
                max_failures=config.placement.restarts,
                controller_failure_limit=-1 if workers.elastic or config.placement.autoscaled else START_ATTEMPTS,
            ),
        ),
    )


def _streams(job: Job, cpus: float) -> dict[str, Callable[[], Stream | LaterStream]]:
    """Return name -> function that makes a stream, called at every start of the workers, also after a failure.

    The first stream is that with which the workers start, from the newest intact checkpoint. The others are of later
    phases, and are built when the workers get there. `cpus` is as in `Stream`.
    """

    def stream() -> Stream:
        if failure := ray.get(job.tracker.failure.remote()):
            raise failure
        state = _newest_state(job)
        phase = job.config.phase_at(state.step)
        ray.get(job.tracker.begin.remote())
        return build_stream(
            settings_for_phase(job.stream, phase),
            cursor_for_phase(state.cursor, phase, state.step),
            _needed_rows(job.config, phase, state.step),
            cpus,
        )

    def later(phase: Phase) -> Callable[[], LaterStream]:
        settings, rows = settings_for_phase(job.stream, phase), _needed_rows(job.config, phase, phase.first)
        stream = LaterStream(settings=settings, phase=phase, folder=job.folder, rows=rows, cpus=cpus)
        return lambda: stream

    return {STREAM: stream} | {stream_of(phase): later(phase) for phase in job.config.all_phases[1:]}


def _needed_rows(config: Pretrain, phase: Phase, done: int) -> int:
    """Return the rows that the stream of a phase must have, of which `done` steps of the run are over.

    They are those of one more step and round of blocks, so that the stream does not end before the last step.
    """
    left = offset(phase.end - phase.first + 1, phase.batch) - offset(done - phase.first, phase.batch)
    return left + most_of_round(config, phase)


def stream_bytes(config: Pretrain) -> int:
    """Return the maximum bytes of finished blocks that a run's stream may hold, for its most demanding phase."""
    return max(bytes_ahead(most_of_round(config, phase), phase.sampling.row_length) for phase in config.all_phases)


def most_of_round(config: Pretrain, phase: Phase) -> int:
    """Return the maximum number of rows in a round (one block of every worker) over all allowed numbers of workers."""
    workers = config.worker_range
    return max(
        rows_of_round(phase.batch, phase.sampling.row_length, world) for world in range(workers.least, workers.most + 1)
    )


def watch(
    tracker: ActorHandle,
    stop: threading.Event,
    report: Report,
    show: Callable[[int, dict[str, float]], None],
) -> None:
    """Forward the tracker's lines and new training metrics until `stop` is set, and once more after `stop` is set."""
    reason = "if nodes are missing, ray status lists them; the run continues when they have joined"
    if is_loopback(ray.util.get_node_ip_address()):  # no other machine can join
        reason = "the machine is busy, or a step, a compilation or an evaluation takes long"
    shown_step, last = None, False
    last_news, warned, longest = time.monotonic(), False, 0.0
    while not last:
        last = stop.wait(POLL_SECONDS)
        try:
            messages, progress = ray.get([tracker.take_messages.remote(), tracker.progress.remote()])
        except ray.exceptions.RayError:  # the main thread gets the same error and reports it
            return
        for message in messages:
            report(message)
        if messages or (progress and progress[0] != shown_step):
            now = time.monotonic()
            last_news, warned, longest = now, False, max(longest, now - last_news)
        if progress and progress[0] != shown_step:
            shown_step = progress[0]
            show(*progress)
        if not warned and time.monotonic() - last_news > max(SILENT_SECONDS, SILENT_INTERVALS * longest):
            warned = True
            report(f"no news from the workers for {time.monotonic() - last_news:.0f} s; {reason}")


def _plain_error(error: TrainingFailedError, job: Job) -> PipelineError:
    """Return the error to show for a failed training: a PipelineError among its causes, else a new PipelineError."""
    if failure := ray.get(job.tracker.failure.remote()):
        return failure
    causes: list[BaseException] = []
    if isinstance(error, ControllerError):
        causes = [error.controller_failure]
    elif isinstance(error, WorkerGroupError):
        causes = list(error.worker_failures.values())
    for cause in causes:
        if known := pipeline_cause(cause):
            return known
    text = "; ".join(sorted({error_line(cause) for cause in causes})) or storage.first_line(error)
    restarts = job.config.placement.restarts
    if isinstance(error, ControllerError):
        return PipelineError(
            f"the workers could not be started: {text}; ray status says what the cluster lacks; "
            "the same command continues from the last checkpoint"
        )
    logs = keep_logs(storage.join(job.folder, "ray-logs"))
    return PipelineError(
        f"training failed more often than placement.restarts ({restarts}) allows: {text}; "
        f"the full error is {logs}; the same command continues from the last checkpoint"
    )
