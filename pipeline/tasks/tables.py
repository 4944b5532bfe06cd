"""Read the tab-separated files of a task's splits as GLUE's: quotes are plain characters, and each line is one row."""

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
Row = tuple[str, str, str | None, str | None]
"""The columns of TEXTS."""


class BrokenLine(ValueError):
    """A line that is not a valid row; the message says why in a few words."""


def read_split(task: Task, folder: str, split: str, *, skip: bool = False) -> pa.Table:
    """Return the rows of a task's split below `folder` (a path or URL), schema TEXTS; `left_out` returns the lines that
    were skipped.

    Raises DataError, with file and line, for a missing split or column, an unreadable line, an empty text, an unknown
    label, and a training split with only one class. `skip` skips such lines in labelled splits.
    """
    where = task.split(split)
    location = storage.join(folder, where.file)
    lines = tab_separated(location, _split_content(task, folder, where))
    names = where.headings or next(lines, (1, ("",)))[1]
    indices = _column_indices(location, names, where)
    rows: list[Row] = []
    left_out: list[str] = []
    for number, (line, fields) in enumerate(lines):
        try:
            rows.append(_row_of(task, where, number, names, indices, fields))
        except BrokenLine as error:
            if not (skip or task.skips_broken_lines) or where.label is None:
                raise DataError(f"{location}:{line}: {error}") from None
            left_out.append(f"{where.file}:{line}: {error}")
    if left_out and not rows:
        raise DataError(f"{location} has no row that can be used: {left_out[0]}")
    texts = texts_table(location, rows).replace_schema_metadata({LEFT_OUT: json.dumps(left_out)})
    if split == "train":
        require_trainable(texts, location)
    return texts


def left_out(texts: pa.Table) -> list[str]:
    """Return what the reader of a table of TEXTS skipped: file, line and reason of each."""
    return json.loads((texts.schema.metadata or {}).get(LEFT_OUT, b"[]"))


def existing_file(location: str) -> str | None:
    """Return a file's location, plain or compressed; None if it does not exist."""
    return next(
        (path for path in (location, *(location + ending for ending in COMPRESSED)) if storage.exists(path)), None
    )


def _split_content(task: Task, folder: str, where: Split) -> bytes:
    """Return the bytes of a split's file. Raises DataError that lists the existing files."""
    location = storage.join(folder, where.file)
    if (path := existing_file(location)) is not None:
        return content_of(path)
    inner = location.rsplit("/", 1)[0]
    there = storage.children(inner)
    available = f"{inner} has {listed(there)}" if there else f"{folder} has {listed(storage.children(folder))}"
    raise DataError(f"{location} (split {where.name} of {task.name}) does not exist; {available}")


def tab_separated(location: str, content: bytes) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield (line number from 1, fields) of each non-blank line. Raises DataError for invalid UTF-8."""
    for line, text in enumerate(decoded(location, content).split("\n"), 1):
        if not is_blank(text := text.removesuffix("\r")):
            yield line, text.split("\t")


def _column_indices(location: str, names: Sequence[str], where: Split) -> list[int | None]:
    """Return the indices of a split's columns in the order of TEXTS; None for columns that it lacks.

    Raises DataError that lists the existing columns.
    """
    require_columns(location, names, [name for name in (where.first, where.second, where.label) if name is not None])
    return [names.index(name) if name in names else None for name in (where.id, where.first, where.second, where.label)]


def require_columns(location: str, there: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise DataError that lists a file's columns unless all wanted ones exist once."""
    missing = [name for name in wanted if name not in there]
    if missing:
        raise DataError(f"{location} has no column {missing[0]}: its columns are {listed(there)}")
    require_once(location, [name for name in there if name in wanted])


def require_once(location: str, names: Sequence[str]) -> None:
    """Raise DataError for a duplicated name."""
    if doubled := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(f"{location}: column {shown(doubled[0])} occurs twice; give each column its own name")


def _row_of(
    task: Task, where: Split, number: int, names: Sequence[str], indices: Sequence[int | None], fields: Sequence[str]
) -> Row:
    """Convert a line's fields to a row of TEXTS. Raises BrokenLine."""
    if len(fields) != len(names):
        raise BrokenLine(f"{len(fields)} columns instead of {len(names)}")
    id, first, second, label = (None if index is None else fields[index] for index in indices)
    assert first is not None, "a split has a first text"
    # Every row of a test split needs an answer, so empty texts stay in tasks that are known to have broken lines.
    if not (task.skips_broken_lines and where.label is None):
        for name, text in ((where.first, first), (where.second, second)):
            if text is not None and not text.strip():
                raise BrokenLine(f"column {name} is empty")
    if label is not None:
        try:
            task.number(label)
        except ValueError as error:
            raise BrokenLine(str(error)) from None
    return id or str(number), first, second, label


def texts_table(location: str, rows: Iterable[Row]) -> pa.Table:
    """Return rows as a table of TEXTS. Raises DataError if there are none, or one cannot be encoded as UTF-8."""
    columns = list(zip(*rows))
    if not columns:
        raise DataError(f"{location} has no rows")
    try:
        return pa.table([pa.array(column, field.type) for column, field in zip(columns, TEXTS)], schema=TEXTS)
    except UnicodeEncodeError as error:
        raise DataError(
            f"{location}: {shown(error.object)} holds half of a surrogate pair, which is not a character"
        ) from None
