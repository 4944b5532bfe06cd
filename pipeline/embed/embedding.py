"""Embed the parts of files of texts with a model"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from pipeline.batch import Batch
from pipeline.config.embed import Embed
from pipeline.embed import model
from pipeline.embed.description import Description
from pipeline.embed.folder import (
    CUT,
    EMPTY,
    PRECISION,
    TEXTS,
    StoredChunks,
    count,
    part_table,
    publish_part,
)
from pipeline.embed.ids import require_unique_inputs
from pipeline.embed.model import VectorModel
from pipeline.embed.texts import CHARACTERS_BEFORE, InputColumns, short_names, text_tables
from pipeline.errors import PipelineError, class_of
from pipeline.model.int8 import INT8_SCHEME
from pipeline.model.watching import each_batch
from pipeline.on_ray.answering import AnswerProgress
from pipeline.predict.inputs import RowFile, digest_of
from pipeline.predict.parts import Parts
from pipeline.predict.running import run_work
from pipeline.predict.work import Note, PartsWork, Reader, input_in, part_row
from pipeline.reporting import BEAT_SECONDS, Report
from pipeline.tables.roles import ID, TEXT, TITLE

QUEUED_BYTES = 128 << 20
"""Maximum bytes of parts that wait in the object store. Without this limit, memory would grow with the input."""


def about(config: Embed, files: Sequence[RowFile], described: Description) -> dict[str, Any]:
    """Return everything that determines the vectors. Error messages show the keys."""
    size = sum(file.bytes for file in files)
    names = ("text", "id", "title", "chunks", "keep_text", "rows_per_part")
    return {
        "input": f"{config.input} ({len(files)} files, {size:,} bytes, {digest_of(files)})",
        "model": f"{config.checkpoint} ({described.digest}, {described.dimension} numbers)",
        "pooling": f"{described.pooling}{', length 1' * described.normalized}, {described.maximum_length} tokens",
        "prompt": repr(described.prompt),
        "format": config.format,
        "settings": ", ".join(f"{name} {getattr(config, name)}" for name in names),
        "precision": INT8_SCHEME if config.placement.precision == "int8" else config.placement.precision,
    }


def embed_missing(
    config: Embed,
    files: Sequence[RowFile],
    described: Description,
    parts: Parts,
    report: Report,
    texts: str = "texts",
) -> None:
    """Embed and publish all missing parts with the model that `described` describes; `texts` names the texts."""
    before = len(parts.done())
    if before:
        report(f"{before:,} parts are embedded already")
    else:
        require_unique_inputs(files, InputColumns.of(config))
    if not parts.missing(len(files)):
        return
    limits = (config.rows_per_part, parts.characters(before=CHARACTERS_BEFORE))
    work = PartsWork(
        config=config,
        reader=TextReader(list(files), parts.done(), *limits, InputColumns.of(config)),
        parts=parts,
        make_worker=partial(Embedding, described),
        counts_texts=True,
        queued_bytes=QUEUED_BYTES,
    )
    embedded = count(parts)[0].texts if before else 0
    run_work(work, AnswerProgress(report, None, before=embedded, done=f"{texts} embedded"), report)


class TextReader(Reader):
    """Read a file's texts with their ids and titles."""

    def __init__(
        self, files: list[RowFile], done: set[tuple[int, int]], rows: int, characters: int, columns: InputColumns
    ) -> None:
        super().__init__(files, done, rows, characters)
        self.columns, self.names = columns, short_names(files)

    def tables(self, file: int) -> Iterator[pa.Table]:
        return text_tables(self.files[file], self.names[file], self.columns, self.rows, self.characters)


class Embedding:
    """Load the model in a process, then embed and publish parts."""

    def __init__(self, described: Description, work: PartsWork, *, threads: int, note: Note) -> None:
        assert isinstance(work.config, Embed)
        model.use_threads(threads)
        self.config, self.files, self.described, self.parts = work.config, work.files, described, work.parts
        self.note = note

    @cached_property
    def model(self) -> VectorModel:
        """The model. It is loaded for the first part, so that `__call__` can report an error of loading."""
        return model.load_described(self.described, self.config)

    def __call__(self, row: pa.Table) -> pa.Table:
        given = input_in(row)
        if given is None:
            return row
        file, part, table = given.file, given.part, given.table
        try:
            vector_model = self.model
        except PipelineError as error:
            return part_row(file, error=error)
        try:
            embedded = _embed_table(
                vector_model,
                table,
                self.config,
                lambda share: self.note((file, part), share * table.num_rows),
            )
        except PipelineError as error:
            return part_row(file, error=class_of(error)(f"{self.files[file].location}: {error}"))
        publish_part(self.parts, file, part, embedded.table, embedded.metadata)
        self.note((file, part), 0.0)
        return part_row(file, part=part, rows=table.num_rows)


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """The table of a part, and its counts."""

    table: pa.Table
    metadata: dict[bytes, str]


def _embed_table(
    vector_model: VectorModel, table: pa.Table, config: Embed, after: Callable[[float], object]
) -> Embedded:
    """Embed the texts of a table (columns id, text and title); empty texts get no vector.

    `after` is called every BEAT_SECONDS with the share of the chunks that are embedded.
    """
    texts = table[TEXT].to_pylist()
    full = [row for row, text in enumerate(texts) if text is not None and text.strip()]
    spans = vector_model.spans([texts[row] for row in full])
    cut = 0 if config.chunks else sum(len(of_text) > 1 for of_text in spans)
    if not config.chunks:
        spans = [[(0, len(texts[row]))] for row in full]
    places = [(row, number, span) for row, of_text in zip(full, spans) for number, span in enumerate(of_text)]
    ids = table[ID].to_pylist()
    titles = table[TITLE].to_pylist()
    chunks = StoredChunks(
        ids=[ids[row] for row, _, _ in places],
        titles=[titles[row] for row, _, _ in places],
        numbers=[number for _, number, _ in places],
        spans=[span for _, _, span in places],
        texts=[texts[row][start:end] for row, _, (start, end) in places],
    )
    counts = {TEXTS: len(texts), EMPTY: len(texts) - len(full), CUT: cut}
    done, said = 0, time.monotonic()

    def count_chunks(batch: Batch) -> None:
        nonlocal done, said
        done += batch.sequences
        if time.monotonic() - said >= BEAT_SECONDS:
            said = time.monotonic()
            after(done / len(chunks.texts))

    with each_batch(vector_model.model.encoder, count_chunks):
        vectors = vector_model.vectors(chunks.texts)
    return Embedded(
        table=part_table(chunks, vectors, config.format, config.keep_text),
        metadata={name: str(value) for name, value in counts.items()} | {PRECISION: vector_model.precision},
    )
