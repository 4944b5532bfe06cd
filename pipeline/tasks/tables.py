"""Read the rows of published files of texts and pairs: a task's split as a table."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pipeline.errors import DataError, listed, shown
from pipeline.files import storage
from pipeline.tables.columns import BrokenLine, NotScored, require_columns
from pipeline.tables.content import existing_file, text_lines
from pipeline.tasks.layouts import LAYOUTS
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.task import Split, Task, require_trainable

HELD_OUT = 10
"""Without a development file, about one in HELD_OUT training items is held out for development, chosen by a hash."""
LEFT_OUT = b"left_out"
"""Key of a table's metadata that holds the skipped lines."""
Row = tuple[str, str, str | None, str | None]
"""One row of TEXTS: id, first, second, label."""


def read_split(task: Task, folder: str, split: str, *, skip: bool = False) -> pa.Table:
    """Return the rows of a task's split below `folder` (a path or URL), schema TEXTS.

    Raises DataError for a missing split or column, and for a training split with only one class. A line that is
    unreadable, or has an empty text or an unknown label, raises DataError with file and line. Such lines are skipped
    instead if the split has labels and either `skip` or the task's skips_broken_lines is set. Rows that the data set
    itself leaves out of its scores are always skipped. `left_out` returns the skipped lines.
    """
    split_file = task.split(split)
    location = storage.join(folder, split_file.file)
    names, lines = LAYOUTS[split_file.layout](location, _split_lines(task, folder, split_file), split_file)
    indices = _column_indices(location, names, split_file)
    rows: list[Row] = []
    left_out: list[str] = []
    for number, (line, fields) in enumerate(lines):
        try:
            row = _row_of(task, split_file, number, names, indices, fields)
            if split_file.held_out in (None, is_held_out(row[1])):
                rows.append(row)
        except BrokenLine as error:
            kept_out = isinstance(error, NotScored) or skip or task.skips_broken_lines
            if not kept_out or split_file.label is None:
                raise DataError(f"{location}:{line}: {error}") from None
            left_out.append(f"{split_file.file}:{line}: {error}")
    if left_out and not rows:
        raise DataError(f"{location} has no row that can be used: {left_out[0]}")
    texts = texts_table(location, rows).replace_schema_metadata({LEFT_OUT: json.dumps(left_out)})
    if split == "train":
        require_trainable(texts, location)
    return texts


def left_out(texts: pa.Table) -> list[str]:
    """Return the lines that `read_split` skipped for a table of TEXTS: file, line number and reason of each."""
    return json.loads((texts.schema.metadata or {}).get(LEFT_OUT, b"[]"))


def _split_lines(task: Task, folder: str, split_file: Split) -> Iterator[str]:
    """Return the lines of a split's file. If it does not exist, raises DataError that lists the existing files."""
    location = storage.join(folder, split_file.file)
    if (path := existing_file(location)) is not None:
        return text_lines(path)
    inner = location.rsplit("/", 1)[0]
    names = storage.children(inner)
    available = f"{inner} has {listed(names)}" if names else f"{folder} has {listed(storage.children(folder))}"
    raise DataError(f"{location} (split {split_file.name} of {task.name}) does not exist; {available}")


def _column_indices(location: str, names: Sequence[str], split_file: Split) -> list[int | None]:
    """Return for each column of TEXTS its index in `names`, the file's columns; None if the file lacks the column.

    Raises DataError as `require_columns` does; only the id may be missing.
    """
    texts_and_label = (split_file.first, split_file.second, split_file.label)
    require_columns(location, names, [name for name in texts_and_label if name is not None])
    return [names.index(name) if name in names else None for name in (split_file.id, *texts_and_label)]


def _row_of(
    task: Task,
    split_file: Split,
    number: int,
    names: Sequence[str],
    indices: Sequence[int | None],
    fields: Sequence[str] | BrokenLine,
) -> Row:
    """Convert the fields of row `number` (from 0) to a row of TEXTS. Raises BrokenLine if the row cannot be used."""
    if isinstance(fields, BrokenLine):
        raise fields
    if len(fields) != len(names):
        raise BrokenLine(f"{len(fields)} columns instead of {len(names)}")
    id, first, second, label = (None if index is None else fields[index] for index in indices)
    assert first is not None, "a split has a first text"
    # Every row of a test split needs a prediction. So if a task is known to have broken lines, its test split may have
    # empty texts.
    if not (task.skips_broken_lines and split_file.label is None):
        for name, text in ((split_file.first, first), (split_file.second, second)):
            if text is not None and not text.strip():
                raise BrokenLine(f"column {name} is empty")
    if label is not None:
        try:
            task.indicators(label) if task.kind == "multilabel" else task.number(label)
        except ValueError as error:
            raise BrokenLine(str(error)) from None
    return id or str(number), first, second, label


def texts_table(location: str, rows: Iterable[Row]) -> pa.Table:
    """Return rows as a table of TEXTS. Raises DataError if there are no rows, or a text cannot be encoded as UTF-8."""
    columns = list(zip(*rows))
    if not columns:
        raise DataError(f"{location} has no rows")
    try:
        return pa.table([pa.array(column, field.type) for column, field in zip(columns, TEXTS)], schema=TEXTS)
    except UnicodeEncodeError as error:
        raise DataError(
            f"{location}: {shown(error.object)} holds half of a surrogate pair, which is not a character"
        ) from None


def is_held_out(text: str) -> bool:
    """Return whether a text is held out for development. Its hash decides; about one text in HELD_OUT is held out."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % HELD_OUT == 0
