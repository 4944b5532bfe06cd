"""Work on the parts of files: what there is to do, and the rows in which parts pass from the reader to the workers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from pipeline import errors
from pipeline.config.embed import Embed
from pipeline.config.predict import Predict
from pipeline.errors import PipelineError, class_of
from pipeline.on_ray.answering import AnswerProgress
from pipeline.predict.inputs import RowFile, cut_by_characters, parts_of, rows_of
from pipeline.predict.parts import Parts

Note = Callable[[tuple[int, int], float], object]
"""Function of (file, part) and of the number of the part's texts that are done before the part is complete."""
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


class Worker(Protocol):
    """Holds the model, and publishes parts: turns a row of PART with a table into one without."""

    def __call__(self, row: pa.Table, /) -> pa.Table: ...


class MakeWorker(Protocol):
    """Loads the model in a worker's process. `note` takes the progress within parts."""

    def __call__(self, work: "PartsWork", /, *, threads: int, note: Note) -> Worker: ...


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
    kind, message = (class_of(error).__name__, str(error)) if error else ("", "")
    return pa.Table.from_pylist(
        [
            {"file": file, "part": part, "rows": rows, "first": first, "table": table, "parts": parts}
            | {"error": kind, "message": message}
        ],
        schema=PART,
    )


@dataclass(frozen=True, kw_only=True)
class PartInput:
    """The input of a part."""

    file: int
    part: int
    first: int
    """Number of the table's first row in its file, from 1."""
    table: pa.Table


def input_in(row: pa.Table) -> PartInput | None:
    """Return the input of a part in a row (schema PART); None if the row has none and passes through the worker."""
    (found,) = row.to_pylist()
    if found["table"] is None:
        return None
    table = pa.ipc.open_stream(found["table"]).read_all()
    return PartInput(file=found["file"], part=found["part"], first=found["first"], table=table)


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


@dataclass(frozen=True, kw_only=True)
class PartsWork:
    """All missing parts of the reader's files. The bytes of a part do not depend on where it is worked on."""

    config: Predict | Embed
    reader: Reader
    parts: Parts
    make_worker: MakeWorker
    counts_texts: bool = False
    """Whether workers note the texts of parts that are not complete yet."""
    queued_bytes: float | None = None
    """On Ray, maximum bytes of parts that wait for the workers in the object store. At this limit, back-pressure stops
    the reader. None: Ray's default, a share of the object store.
    """

    @property
    def files(self) -> list[RowFile]:
        return self.reader.files

    def missing_files(self) -> list[int]:
        """Return the numbers of the files that have missing parts, or whose number of parts is not known."""
        done, counts = self.parts.done(), self.parts.counts()
        return [
            number
            for number in range(len(self.files))
            if not (number in counts and all((number, part) in done for part in range(counts[number])))
        ]


def count(files: Sequence[RowFile]) -> int | None:
    """Return the number of rows of all files; None if a file cannot be read, which `Reader` reports."""
    try:
        return sum(map(rows_of, files))
    except PipelineError:
        return None


def close_part(row: dict[str, Any], parts: Parts, progress: AnswerProgress) -> None:
    """Take a row (schema PART) that a worker is done with. Raises the PipelineError that the row contains."""
    if row["error"]:
        raise getattr(errors, row["error"])(row["message"])
    if row["parts"]:
        parts.close(row["file"], row["parts"] - 1)
    if row["rows"]:
        progress.add(row["rows"])
