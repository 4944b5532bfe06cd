"""Read tab-separated files in the format of GLUE: quotes are plain characters, and each line is one row."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pipeline import storage
from pipeline.errors import DataError, listed, shown
from pipeline.tasks.content import COMPRESSED, content_of, decoded, is_blank
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.task import Split, Task, require_trainable

LEFT_OUT = b"left_out"
"""Key of a table's metadata that holds the skipped lines."""
Row = tuple[str, str, str | None, str | None]
"""One row of TEXTS: id, first, second, label."""


class BrokenLine(ValueError):
    """A line that is not a valid row; the message says why in a few words."""


def read_split(task: Task, folder: str, split: str, *, skip: bool = False) -> pa.Table:
    """Return the rows of a task's split below `folder` (a path or URL), schema TEXTS.

    Raises DataError for a missing split or column, and for a training split with only one class. A line that is
    unreadable, or has an empty text or an unknown label, raises DataError with file and line. Such lines are skipped
    instead if the split has labels and either `skip` or the task's skips_broken_lines is set. `left_out` returns the
    skipped lines.
    """
    split_file = task.split(split)
    location = storage.join(folder, split_file.file)
    lines = tab_separated(location, _split_content(task, folder, split_file))
    names = split_file.headings or next(lines, (1, ("",)))[1]
    indices = _column_indices(location, names, split_file)
    rows: list[Row] = []
    left_out: list[str] = []
    for number, (line, fields) in enumerate(lines):
        try:
            rows.append(_row_of(task, split_file, number, names, indices, fields))
        except BrokenLine as error:
            if not (skip or task.skips_broken_lines) or split_file.label is None:
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


def existing_file(location: str) -> str | None:
    """Return a file's location, plain or compressed; None if it does not exist."""
    return next(
        (path for path in (location, *(location + ending for ending in COMPRESSED)) if storage.exists(path)), None
    )


def _split_content(task: Task, folder: str, split_file: Split) -> bytes:
    """Return the bytes of a split's file. If it does not exist, raises DataError that lists the existing files."""
    location = storage.join(folder, split_file.file)
    if (path := existing_file(location)) is not None:
        return content_of(path)
    inner = location.rsplit("/", 1)[0]
    names = storage.children(inner)
    available = f"{inner} has {listed(names)}" if names else f"{folder} has {listed(storage.children(folder))}"
    raise DataError(f"{location} (split {split_file.name} of {task.name}) does not exist; {available}")


def tab_separated(location: str, content: bytes) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield (line number from 1, fields) of each non-blank line. Raises DataError for invalid UTF-8."""
    for line, text in enumerate(decoded(location, content).split("\n"), 1):
        if not is_blank(text := text.removesuffix("\r")):
            yield line, text.split("\t")


def _column_indices(location: str, names: Sequence[str], split_file: Split) -> list[int | None]:
    """Return for each column of TEXTS its index in `names`, the file's columns; None if the file lacks the column.

    Raises DataError as `require_columns` does; only the id may be missing.
    """
    texts_and_label = (split_file.first, split_file.second, split_file.label)
    require_columns(location, names, [name for name in texts_and_label if name is not None])
    return [names.index(name) if name in names else None for name in (split_file.id, *texts_and_label)]


def require_columns(location: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise DataError unless a file's columns, `names`, include each of `wanted` once."""
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(f"{location} has no column {missing[0]}: its columns are {listed(names)}")
    require_once(location, [name for name in names if name in wanted])


def require_once(location: str, names: Sequence[str]) -> None:
    """Raise DataError for a duplicated name."""
    if doubled := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(f"{location}: column {shown(doubled[0])} occurs twice; give each column its own name")


def _row_of(
    task: Task,
    split_file: Split,
    number: int,
    names: Sequence[str],
    indices: Sequence[int | None],
    fields: Sequence[str],
) -> Row:
    """Convert the fields of row `number` (from 0) to a row of TEXTS. Raises BrokenLine if the row cannot be used."""
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
            task.number(label)
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
