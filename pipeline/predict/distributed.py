"""Answer input files on Ray Data. Files are read as streams of parts. Processes that hold the model answer the parts
and publish the answers.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import ray
import torch
from ray.data import DataContext

from pipeline import errors
from pipeline.config.embed import Embed
from pipeline.config.predict import Predict
from pipeline.errors import ConfigError, PipelineError
from pipeline.files.locations import is_url
from pipeline.files.shared_output import report_shared_output
from pipeline.on_ray import cluster
from pipeline.on_ray.answering import AnswerProgress as Progress
from pipeline.on_ray.stderr_filter import RESTART_WARNING, lines_left_out
from pipeline.on_ray.tasks import MOST_BLOCKS, context_without_time_limit, quiet_ray_data
from pipeline.predict import model
from pipeline.predict.inputs import RowFile, cut_by_characters, digest_of, parts_of, rows_of
from pipeline.predict.parts import Parts, PartsSummary
from pipeline.reporting import Report, beating
from pipeline.train.hardware import cores
from pipeline.train.probe import gpus_of_process, require_usable_gpus

READER_CPUS = 0.5
"""CPUs of the process that reads files, and of the process that distributes parts. Both mostly wait for the models."""
CHARACTERS_PER_PART = 250_000
"""Maximum characters of a part, about 60,000 tokens. Progress is reported, and rows are saved, after each part."""
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


def result_lines(whole: PartsSummary, files: int, seconds: float, target: str) -> list[str]:
    """Return the last lines of a prediction: number of answers, number format, time, and location of the output."""
    without = f", {whole.empty:,} of them empty and without an answer" if whole.empty else ""
    without += f", {whole.cut:,} truncated, because they are longer than the model reads" if whole.cut else ""
    of_files = f" of {files:,} files" if files > 1 else ""
    computed = f"computed in {' and '.join(whole.precisions)}, in {seconds:.0f} s"
    mixed = [mixed_precisions_line(whole.precisions)] if len(whole.precisions) > 1 else []
    return [*mixed, f"{whole.rows:,} rows{of_files}{without}, {computed}: {target}"]


def mixed_precisions_line(precisions: Mapping[str, int]) -> str:
    """Return a warning that answers were computed in several number formats; `precisions`: format -> number of rows."""
    each = " and ".join(f"{rows:,} rows in {precision}" for precision, rows in precisions.items())
    remedy = "--placement.precision float32 --replace answers all rows in one format"
    return f"placement.precision auto: {each}, because the machines differ; {remedy}"


def about(config: Predict, files: Sequence[RowFile], fingerprint: str) -> dict[str, Any]:
    """Return everything that determines the content of the parts. The keys are words for error messages."""
    size = sum(file.bytes for file in files)
    settings: dict[str, Any] = {"text": config.text, "pair": config.pair, "top": config.top}
    settings |= {"rows_per_part": config.rows_per_part} | ({"choices": config.choices} if config.choices else {})
    settings |= {"words": config.words} if config.words is not None else {}
    return {
        "input": f"{config.input} ({len(files)} files, {size:,} bytes, {digest_of(files)})",
        "model": f"{config.checkpoint} ({fingerprint})",
        "settings": ", ".join(f"{name} {value}" for name, value in settings.items()),
        "precision": config.placement.precision,
    }


def answer_missing(config: Predict, files: Sequence[RowFile], parts: Parts, report: Report) -> None:
    """Answer and publish every part that is not answered yet."""
    if before := len(parts.done()):
        report(f"{before:,} parts are answered already")
    if parts.missing(len(files)):
        _answer_all(config, files, parts, report)


def _answer_all(config: Predict, files: Sequence[RowFile], parts: Parts, report: Report) -> None:
    """Answer and publish every missing part."""
    cluster.connect(config.placement.address)
    use = fit(config, cpus=ray.cluster_resources().get("CPU", 0.0), gpus=ray.cluster_resources().get("GPU", 0.0))
    if config.actors is None:
        use = replace(use, actors=int(min(use.actors, most_parts(files, config.rows_per_part))))
    if use.gpus:
        require_usable_gpus()
    report_shared_output(config.output, cluster.count_nodes() > 1 or config.placement.autoscaled, report)
    if len(files) > 1 or use.actors > 1:
        report(resources_line(len(files), use))
    worker = Worker(kind=Answering, arguments=(config, list(files), parts, threads(config, use)), use=use)
    reader = Reader(list(files), parts.done(), config.rows_per_part, parts.characters(before=sys.maxsize))
    run_parts(reader, worker, parts, Progress(report, None, before=parts.counted().rows if parts.done() else 0))


@dataclass(frozen=True, kw_only=True)
class Worker:
    """Processes that work on parts. In each process, Ray Data creates `kind` with `arguments`."""

    kind: type
    arguments: tuple[Any, ...]
    use: ModelResources


def run_parts(
    reader: "Reader",
    worker: Worker,
    parts: Parts,
    progress: Progress,
    queued_bytes: float | None = None,
    beat: Callable[[], None] | None = None,
) -> None:
    """Let workers work on every missing part of the reader's files. Raises the PipelineError of a part.

    `queued_bytes` limits the bytes of parts that wait for the workers in the object store. At this limit, back-pressure
    stops the reader. None: Ray's default, a share of the object store. `beat` is called every second; default: that of
    `progress`.
    """
    done, counts, files = parts.done(), parts.counts(), reader.files
    items = [
        number
        for number in range(len(files))
        if not (number in counts and all((number, part) in done for part in range(counts[number])))
    ]
    context = context_without_time_limit()
    limits = context.execution_options.resource_limits
    context.execution_options.resource_limits = limits.copy(object_store_memory=queued_bytes)
    with DataContext.current(context), quiet_ray_data(), beating(beat or progress.beat):
        rows = (
            ray.data.from_items(
                [{"file": number} for number in items], override_num_blocks=min(len(items), MOST_BLOCKS)
            )
            .map_batches(reader, batch_size=1, batch_format="pyarrow", num_cpus=READER_CPUS)
            # one part per block, because Ray Data schedules whole blocks
            .repartition(target_num_rows_per_block=1, strict=True)
            .map_batches(
                worker.kind,
                fn_constructor_args=worker.arguments,
                batch_size=1,
                batch_format="pyarrow",
                num_cpus=worker.use.cpus,
                num_gpus=worker.use.gpus or None,
                compute=ray.data.ActorPoolStrategy(size=worker.use.actors),
            )
        )
        with lines_left_out(RESTART_WARNING, most=worker.use.actors):
            _follow(rows, parts, progress, _start_counting(files))


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


def count(files: list[RowFile]) -> int | None:
    """Return the number of rows of all files; None if a file cannot be read, which `Reader` reports."""
    try:
        return sum(map(rows_of, files))
    except PipelineError:
        return None


def _follow(rows: Any, parts: Parts, progress: Progress, counting: ray.ObjectRef | None) -> None:
    """Read a row (schema PART) per finished part, and report progress. Raises the PipelineError that a row contains."""
    for row in rows.iter_rows():
        if counting and ray.wait([counting], timeout=0)[0]:
            progress.total, counting = ray.get(counting), None
        if row["error"]:
            raise getattr(errors, row["error"])(row["message"])
        if row["parts"]:
            parts.close(row["file"], row["parts"] - 1)
        if row["rows"]:
            progress.add(row["rows"])


PART = pa.schema(
    [
        ("file", pa.int64()),
        ("part", pa.int64()),
        ("rows", pa.int64()),  # number of rows of the table
        ("first", pa.int64()),  # number of the table's first row in its file, from 1
        # the part's input rows as an Arrow stream; null after they are answered, and in rows without a part
        ("table", pa.large_binary()),
        # in a file's last row: 1 + the file's number of parts, so that the value is not 0; in all other rows: 0
        ("parts", pa.int64()),
        # class and message of an error while reading or answering, else empty. Errors are passed as rows because Ray
        # would add a traceback to a raised error.
        ("error", pa.string()),
        ("message", pa.string()),
    ]
)


def part_row(
    file: int,
    *,
    part: int = -1,
    rows: int = 0,
    first: int = 0,
    table: bytes | None = None,
    parts: int = 0,
    error: PipelineError | None = None,
) -> pa.Table:
    """Return a table of one row, schema PART."""
    kind, message = (type(error).__name__, str(error)) if error else ("", "")
    return pa.Table.from_pylist(
        [
            {"file": file, "part": part, "rows": rows, "first": first, "table": table, "parts": parts}
            | {"error": kind, "message": message}
        ],
        schema=PART,
    )


def _as_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


class Reader:
    """Read a file as a stream: yield a row (schema PART) per unanswered part, then a row for the end of the file."""

    def __init__(self, files: list[RowFile], done: set[tuple[int, int]], rows: int, characters: int) -> None:
        """`rows` and `characters` are the maximum of a part; a single row may have more characters."""
        self.files, self.done, self.rows, self.characters = files, done, rows, characters

    def tables(self, file: int) -> Iterator[pa.Table]:
        """Yield the input of each part of a file."""
        return cut_by_characters(parts_of(self.files[file], self.rows), self.characters)

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        file, count, first = batch["file"][0].as_py(), 0, 1
        try:
            for part, table in enumerate(self.tables(file)):
                count = part + 1
                if (file, part) not in self.done:
                    yield part_row(file, part=part, rows=table.num_rows, first=first, table=_as_bytes(table))
                first += table.num_rows
            yield part_row(file, parts=count + 1)
        except PipelineError as error:
            yield part_row(file, error=error)


class Answering:
    """Load the model in a process, then answer and publish parts."""

    def __init__(self, config: Predict, files: list[RowFile], parts: Parts, threads: int) -> None:
        torch.set_num_threads(threads)
        self.config, self.files, self.parts = config, files, parts
        self.model = model.load(config)

    def __call__(self, batch: pa.Table) -> pa.Table:
        row = batch.to_pylist()[0]
        if row["table"] is None:
            return batch
        file, part, table = row["file"], row["part"], pa.ipc.open_stream(row["table"]).read_all()
        try:
            asked = (self.config.text, self.config.pair, self.config.choices)
            answers, empty = model.answer_table(self.model, table, *asked)
        except PipelineError as error:
            first = row["first"]
            return part_row(
                file,
                error=type(error)(
                    f"{self.files[file].location}, rows {first} to {first + table.num_rows - 1}: {error}"
                ),
            )
        self.parts.publish(file, part, output_columns(table, self.files[file]), answers, empty, self.model.precision)
        return part_row(file, part=part, rows=table.num_rows)


def output_columns(table: pa.Table, file: RowFile) -> pa.Table:
    """Return the input columns that the output keeps.

    SQuAD's contexts are left out because they are long. The words of CoNLL's files are left out because the answers
    contain the words.
    """
    dropped = {"squad": ["context"], "words": ["words"]}.get(file.form, [])
    return table.drop_columns(dropped)


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
