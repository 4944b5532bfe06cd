"""A corpus of inputs answered on Ray Data: read as streams, cut into parts, each answered by one of several loaded models and published by itself."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
import torch

from pipeline import cluster, storage
from pipeline.config.predict import Predict
from pipeline.errors import ConfigError, DataError, PipelineError
from pipeline.predict import model, output
from pipeline.predict.inputs import InputFile, list_inputs, parts_of
from pipeline.predict.parts import Parts, unified
from pipeline.train.worker import cores

Report = Callable[[str], None]
READER_CPUS = 0.5
"""Of a process that reads, and of the one that deals out parts: they wait for the models."""
REPORT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Use:
    """What the processes that hold the model ask of the cluster."""

    actors: int
    cpus: float
    gpus: float


def predict(config: Predict, report: Report) -> None:
    """Answer all that is asked and write the output. Raises PipelineError in one line for all that the user can fix."""
    target = storage.absolute(config.output)
    output.require_free(target, config.replace)
    kind, fingerprint = model.kind_of(config.checkpoint), model.fingerprint(config.checkpoint)
    output.require_form(target, kind)
    files = list_inputs(config.input, config.format, kind == "tags")
    parts = Parts(folder=target + ".parts")
    begun = time.monotonic()
    with storage.locked(parts.folder):
        parts.begin(about(config, files, fingerprint))
        before = len(parts.done())
        if before:
            report(f"{before:,} parts are answered already")
        if parts.missing(len(files)):
            answer_all(config, files, parts, report)
        schemas, rows, empty = parts.schemas()
        if not rows:
            raise DataError(f"input ({config.input}) has no rows in {len(files)} files")
        schema = unified(schemas)
        output.write(parts.tables(schema), parts.final(schema), target, parts.folder)
    storage.delete_folder(parts.folder)
    without = f", {empty:,} of them empty and without an answer" if empty else ""
    report(f"{rows:,} rows of {len(files):,} files{without}, in {time.monotonic() - begun:.0f} s: {target}")


def about(config: Predict, files: Sequence[InputFile], fingerprint: str) -> dict[str, Any]:
    """What decides the parts' content, each by a word for people."""
    stamps = hashlib.sha256(json.dumps([vars(file) for file in files]).encode()).hexdigest()[:12]
    size = sum(file.bytes for file in files)
    settings = {"text": config.text, "pair": config.pair, "top": config.top, "rows_per_part": config.rows_per_part}
    return {
        "input": f"{storage.absolute(config.input)} ({len(files)} files, {size:,} bytes, {stamps})",
        "model": f"{storage.absolute(config.checkpoint)} ({fingerprint})",
        "settings": ", ".join(f"{name} {value}" for name, value in settings.items()),
    }


def answer_all(config: Predict, files: Sequence[InputFile], parts: Parts, report: Report) -> None:
    """Answer and publish every part that is missing."""
    cluster.connect(config.placement.address)
    use = fit(config, cpus=ray.cluster_resources().get("CPU", 0.0), gpus=ray.cluster_resources().get("GPU", 0.0))
    if cluster.nodes() > 1 and not storage.is_url(parts.folder):
        report(f"{cluster.nodes()} machines: output ({config.output}) must be a folder that all of them see, or a URL")
    report(f"{len(files):,} files, {use.actors} processes with the model, each {use.cpus:g} CPUs" + (f" and {use.gpus:g} GPUs" if use.gpus else ""))
    ray.data.DataContext.get_current().enable_progress_bars = False
    done, counts = parts.done(), parts.counts()
    items = [{"file": number} for number in range(len(files)) if not (number in counts and all((number, part) in done for part in range(counts[number])))]
    rows = (
        ray.data.from_items(items, override_num_blocks=len(items))
        .map_batches(Reader(list(files), done, config.rows_per_part), batch_size=1, batch_format="pyarrow", num_cpus=READER_CPUS)
        # one part a block: blocks are what is dealt to the processes
        .repartition(target_num_rows_per_block=1, strict=True)
        .map_batches(
            Answering,
            fn_constructor_args=(config, list(files), parts, threads(config, use)),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=use.cpus,
            num_gpus=use.gpus or None,
            compute=ray.data.ActorPoolStrategy(size=use.actors),
        )
    )
    try:
        follow(rows, parts, report)
    except Exception as error:
        inner = cause(error)
        if inner is error:
            raise
        raise inner from None


def follow(rows: Any, parts: Parts, report: Report) -> None:
    """Take what is done as it is done, and say so now and then."""
    answered, said = 0, time.monotonic()
    for row in rows.iter_rows():
        if row["parts"] is not None:
            parts.close(row["file"], row["parts"])
        answered += row["rows"]
        if time.monotonic() - said > REPORT_SECONDS:
            said = time.monotonic()
            report(f"{answered:,} rows answered")


class Reader:
    """Reads a file as a stream: a row for each of its parts that is not answered yet, and one for its end."""

    def __init__(self, files: list[InputFile], done: set[tuple[int, int]], rows: int) -> None:
        self.files, self.done, self.rows = files, done, rows

    def __call__(self, batch: pa.Table) -> Iterator[pa.Table]:
        file, part = batch["file"][0].as_py(), -1
        for part, table in enumerate(parts_of(self.files[file], self.rows)):
            if (file, part) not in self.done:
                yield record(file, part, table, None)
        yield record(file, -1, None, part + 1)


def record(file: int, part: int, table: pa.Table | None, parts: int | None) -> pa.Table:
    """A part on its way to a model, as one row: its table as the bytes of an Arrow stream."""
    content = None
    if table is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        content = sink.getvalue().to_pybytes()
    schema = pa.schema([("file", pa.int64()), ("part", pa.int64()), ("table", pa.large_binary()), ("parts", pa.int64())])
    return pa.table([[file], [part], [content], [parts]], schema=schema)


class Answering:
    """A process with the model, which answers parts and publishes them."""

    def __init__(self, config: Predict, files: list[InputFile], parts: Parts, threads: int) -> None:
        torch.set_num_threads(threads)
        self.config, self.files, self.parts = config, files, parts
        self.model = model.load(config)

    def __call__(self, batch: pa.Table) -> pa.Table:
        row = batch.to_pylist()[0]
        if row["table"] is None:
            return pa.table({"file": [row["file"]], "parts": [row["parts"]], "rows": [0]})
        table = pa.ipc.open_stream(row["table"]).read_all()
        answers, empty = self.answered(table, row["file"], row["part"])
        self.parts.publish(row["file"], row["part"], kept(table, self.files[row["file"]]), answers, empty)
        return pa.table({"file": [row["file"]], "parts": pa.array([None], pa.int64()), "rows": [table.num_rows]})

    def answered(self, table: pa.Table, file: int, part: int) -> tuple[pa.Table, int]:
        try:
            return model.answered(self.model, table, self.config.text, self.config.pair)
        except DataError as error:
            first = part * self.config.rows_per_part + 1
            raise DataError(f"{self.files[file].location}, rows {first} to {first + table.num_rows - 1}: {error}") from None


def kept(table: pa.Table, file: InputFile) -> pa.Table:
    """What of an input's columns goes to the output: all, but of SQuAD's questions the contexts, and of sentences the words, which come with their tags."""
    dropped = {"squad": ["context"], "words": ["words"]}.get(file.form, [])
    return table.drop_columns(dropped)


def fit(config: Predict, *, cpus: float, gpus: float) -> Use:
    """How many processes hold the model, and what of a cluster each has; a whole CPU is left for reading.

    Raises ConfigError where not one fits.
    """
    there = gpus if config.placement.device != "cpu" else 0.0
    share = min(1.0, there) if config.gpus is None else config.gpus
    if share > there:
        raise ConfigError(f"gpus ({share:g}) is more than there is: the cluster has {there:g} GPUs; ask for at most that, or for 0")
    if config.placement.device == "cuda" and not share:
        raise ConfigError(f"placement.device cuda needs GPUs: gpus is {share:g} and the cluster has {there:g}")
    most = int((cpus - 2 * READER_CPUS) / config.cpus + 1e-6)
    if share:
        most = min(most, int(there / share + 1e-6))
    wanted = config.actors or max(most, 1)
    if wanted > most:
        raise ConfigError(f"actors ({wanted}) of {config.cpus:g} CPUs do not fit: the cluster has {cpus:g} CPUs, of which {2 * READER_CPUS:g} reads; at most {most} fit: lower --actors or --cpus")
    return Use(actors=wanted, cpus=config.cpus, gpus=share)


def threads(config: Predict, use: Use) -> int:
    """CPU threads of each process."""
    return config.placement.threads or max(1, cores() // use.actors if not use.gpus else int(use.cpus))


def cause(error: BaseException) -> BaseException:
    """The pipeline's own error behind those that Ray wraps around it, else the error itself."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, PipelineError):
            return inner
        inner = getattr(inner, "cause", None) or inner.__cause__
    return error
