"""Run the work on parts on Ray Data: a process reads the files, and others, which hold the model, publish the parts."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import ray
from ray.actor import ActorHandle
from ray.data import DataContext

from pipeline.config.embed import Embed
from pipeline.config.predict import Predict
from pipeline.errors import ConfigError, PipelineError
from pipeline.files.locations import is_url
from pipeline.files.shared_output import report_shared_output
from pipeline.on_ray import cluster
from pipeline.on_ray.answering import AnswerProgress
from pipeline.on_ray.stderr_filter import RESTART_WARNING, lines_left_out
from pipeline.on_ray.tasks import MOST_BLOCKS, context_without_time_limit, quiet_ray_data
from pipeline.predict.inputs import RowFile, rows_of
from pipeline.predict.unfinished import UnfinishedParts
from pipeline.predict.work import Note, PartsWork, close_part, count
from pipeline.reporting import BEAT_SECONDS, Report, beating, no_op
from pipeline.train.hardware import cores
from pipeline.train.probe import gpus_of_process, require_usable_gpus

READER_CPUS = 0.5
"""CPUs of the process that reads files, and of the process that distributes parts. Both mostly wait for the models."""
COUNTED_BYTES = 2 << 30
"""Total bytes of inputs up to which rows are counted in the background, to estimate the time left."""
SMALL_BYTES = 1 << 20
"""Total bytes of inputs up to which rows are counted before the start, so that at most one process per part starts."""


@dataclass(frozen=True, kw_only=True)
class ModelResources:
    """Number of the processes that hold the model, and the CPUs and GPUs of each."""

    actors: int
    cpus: float
    gpus: float


@cluster.ray_errors_as_cluster_lost()
def run_on_ray(work: PartsWork, progress: AnswerProgress, report: Report) -> None:
    """Let processes of a cluster work on every missing part. Raises the PipelineError of a part."""
    config, files = work.config, work.files
    cluster.connect(config.placement.address)
    use = fit(config, cpus=ray.cluster_resources().get("CPU", 0.0), gpus=ray.cluster_resources().get("GPU", 0.0))
    if config.actors is None:
        use = replace(use, actors=int(min(use.actors, most_parts(files, config.rows_per_part))))
    if use.gpus:
        require_usable_gpus()
    report_shared_output(config.output, cluster.count_nodes() > 1 or config.placement.autoscaled, report)
    if len(files) > 1 or use.actors > 1:
        report(resources_line(len(files), use))
    unfinished = ray.remote(num_cpus=0, max_restarts=-1)(UnfinishedParts).remote() if work.counts_texts else None

    def beat() -> None:
        texts = 0.0
        with suppress(ray.exceptions.RayError):  # the actor's process starts, or Ray has died, which the job reports
            texts = ray.get(unfinished.texts.remote(), timeout=BEAT_SECONDS) if unfinished else 0.0
        progress.beat(int(texts))

    _run_graph(work, use, RemoteNote(unfinished) if unfinished else no_op, progress, beat)


@dataclass(frozen=True)
class RemoteNote:
    """Note the progress within parts in an actor of `UnfinishedParts`."""

    unfinished: ActorHandle

    def __call__(self, part: tuple[int, int], texts: float) -> None:
        self.unfinished.report.remote(part, texts)


class PartActor:
    """The worker of a process. In each process, Ray Data creates one."""

    def __init__(self, work: PartsWork, threads: int, note: Note) -> None:
        self.worker = work.make_worker(work, threads=threads, note=note)

    def __call__(self, row: pa.Table) -> pa.Table:
        return self.worker(row)


def _run_graph(
    work: PartsWork, use: ModelResources, note: Note, progress: AnswerProgress, beat: Callable[[], None]
) -> None:
    """Work on every missing part in a graph of Ray Data; `beat` is called every second."""
    items = work.missing_files()
    context = context_without_time_limit()
    limits = context.execution_options.resource_limits
    context.execution_options.resource_limits = limits.copy(object_store_memory=work.queued_bytes)
    with DataContext.current(context), quiet_ray_data(), beating(beat):
        rows = (
            ray.data.from_items(
                [{"file": number} for number in items], override_num_blocks=min(len(items), MOST_BLOCKS)
            )
            .map_batches(work.reader, batch_size=1, batch_format="pyarrow", num_cpus=READER_CPUS)
            # one part per block, because Ray Data schedules whole blocks
            .repartition(target_num_rows_per_block=1, strict=True)
            .map_batches(
                PartActor,
                fn_constructor_args=(work, threads(work.config, use), note),
                batch_size=1,
                batch_format="pyarrow",
                num_cpus=use.cpus,
                num_gpus=use.gpus or None,
                compute=ray.data.ActorPoolStrategy(size=use.actors),
            )
        )
        with lines_left_out(RESTART_WARNING, most=use.actors):
            counting = _start_counting(work.files)
            for row in rows.iter_rows():
                if counting and ray.wait([counting], timeout=0)[0]:
                    progress.total, counting = ray.get(counting), None
                close_part(row, work.parts, progress)


def most_parts(files: Sequence[RowFile], rows_per_part: int) -> float:
    """Return the number of parts of all files, at least 1.

    Return infinity if the rows are not counted: for more than SMALL_BYTES, for URLs, and if a file cannot be read.
    """
    if sum(file.bytes for file in files) > SMALL_BYTES or any(is_url(file.location) for file in files):
        return math.inf
    try:
        return max(1, sum(math.ceil(rows_of(file) / rows_per_part) for file in files))
    except PipelineError:  # not raised here: `Reader` reports the error when it reads the file
        return math.inf


def resources_line(files: int, use: ModelResources) -> str:
    """Return a line with the number of files, the number of processes, and the resources of each process."""
    gpus = f" and {use.gpus:g} GPU{'s' * (use.gpus > 1)}" if use.gpus else ""
    processes = f"{use.actors} process{'es' * (use.actors > 1)} with the model"
    each = f"{'each ' * (use.actors > 1)}{use.cpus:g} CPU{'s' * (use.cpus != 1)}{gpus}"
    return f"{files:,} file{'s' * (files > 1)}, {processes}, {each}"


def _start_counting(files: Sequence[RowFile]) -> ray.ObjectRef | None:
    """Start to count the rows of all files in the background.

    For URLs and for more than COUNTED_BYTES, do not count and return None: counting would read the files twice.
    """
    if sum(file.bytes for file in files) > COUNTED_BYTES or any(is_url(file.location) for file in files):
        return None
    return ray.remote(num_cpus=0, max_retries=0)(count).remote(list(files))


def fit(config: Predict | Embed, *, cpus: float, gpus: float) -> ModelResources:
    """Return the number of processes that hold the model, and the resources of each, in a cluster of `cpus` and `gpus`.

    Two times READER_CPUS are left for reading. An autoscaling cluster is assumed to grow as needed. Raises ConfigError
    if config.actors processes do not fit, or if config.actors is None and not even one process fits.
    """
    if config.placement.autoscaled and config.actors:
        return ModelResources(
            actors=config.actors,
            cpus=config.cpus,
            gpus=float(config.placement.device == "cuda") if config.gpus is None else config.gpus,
        )
    share = gpus_of_process("gpus", config.gpus, config.placement.device, gpus)
    most = int((cpus - 2 * READER_CPUS) / config.cpus + 1e-6)
    if share:
        most = min(most, int(gpus / share + 1e-6))
    wanted = config.actors or max(most, 1)
    if wanted > most:
        remedy = (
            f"at most {most} fit: lower --actors or --cpus"
            if most
            else "lower --cpus"
            if cpus > 1
            else "give Ray 2 CPUs (ray start --head --num-cpus 2)"
        )
        raise ConfigError(
            f"actors ({wanted}) of {config.cpus:g} CPUs do not fit: the cluster has {cpus:g} CPUs, and "
            f"reading needs {2 * READER_CPUS:g}; {remedy}"
        )
    return ModelResources(actors=wanted, cpus=config.cpus, gpus=share)


def threads(config: Predict | Embed, use: ModelResources) -> int:
    """Return the CPU threads per process: config.placement.threads, if that is set.

    Otherwise, a process with a GPU gets one thread per CPU that is reserved for this process. Without GPUs, the cores
    are divided evenly among the processes.
    """
    return config.placement.threads or max(1, cores() // use.actors if not use.gpus else int(use.cpus))
