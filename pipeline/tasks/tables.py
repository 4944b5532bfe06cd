"""Tab-separated files of a task's splits, read as GLUE's are: quotes are characters, and one line is one row."""

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
    """A line that is no row of its task; says why in a few words."""


def read_split(task: Task, folder: str, split: str, *, skip: bool = False) -> pa.Table:
    """The rows of a task's split below `folder` (a path or URL), schema TEXTS; `left_out` says which lines are not among them.

    Raises DataError, with file and line, for a split or column that is not there, a line that cannot be read, an empty text, a label that
    is none of the task's, and a training split of one class only; `skip` leaves such lines of a labelled split out.
    """
    where = task.split(split)
    location = storage.join(folder, where.file)
    lines = tab_separated(location, split_content(task, folder, where))
    names = where.headings or next(lines, (1, ("",)))[1]
    places = column_places(location, names, where)
    rows: list[Row] = []
    left_out: list[str] = []
    for number, (line, fields) in enumerate(lines):
        try:
            rows.append(row_of(task, where, number, names, places, fields))
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
    """What the reader of a table of TEXTS left out: file, line and why, one each."""
    return json.loads((texts.schema.metadata or {}).get(LEFT_OUT, b"[]"))


def existing_file(location: str) -> str | None:
    """Return where a file is: as it is called, or compressed; None where it is neither."""
    return next(
        (found for found in (location, *(location + ending for ending in COMPRESSED)) if storage.exists(found)), None
    )


def split_content(task: Task, folder: str, where: Split) -> bytes:
    """The bytes of a split's file. Raises DataError that names the files that are there."""
    location = storage.join(folder, where.file)
    if (found := existing_file(location)) is not None:
        return content_of(found)
    inner = location.rsplit("/", 1)[0]
    there = storage.children(inner)
    beside = f"{inner} has {listed(there)}" if there else f"{folder} has {listed(storage.children(folder))}"
    raise DataError(f"{location} (split {where.name} of {task.name}) is not there; {beside}")


def tab_separated(location: str, content: bytes) -> Iterator[tuple[int, Sequence[str]]]:
    """(line number from 1, its fields) of all lines that are not blank. Raises DataError for bytes that are no UTF-8."""
    for line, text in enumerate(decoded(location, content).split("\n"), 1):
        if not is_blank(text := text.removesuffix("\r")):
            yield line, text.split("\t")


def column_places(location: str, names: Sequence[str], where: Split) -> list[int | None]:
    """Places of a split's columns, in the order of TEXTS; None for one that it does without. Raises DataError that names those there."""
    require_columns(location, names, [name for name in (where.first, where.second, where.label) if name is not None])
    return [names.index(name) if name in names else None for name in (where.id, where.first, where.second, where.label)]


def require_columns(location: str, there: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise DataError that names a file's columns unless all that are wanted are there, each once."""
    missing = [name for name in wanted if name not in there]
    if missing:
        raise DataError(f"{location} has no column {missing[0]}: its columns are {listed(there)}")
    require_once(location, [name for name in there if name in wanted])


def require_once(location: str, names: Sequence[str]) -> None:
    """Raise DataError for a name that stands there twice."""
    if doubled := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(f"{location}: column {shown(doubled[0])} is there twice; give each a name of its own")


def row_of(
    task: Task, where: Split, number: int, names: Sequence[str], places: Sequence[int | None], fields: Sequence[str]
) -> Row:
    """A line's fields as a row of TEXTS. Raises BrokenLine."""
    if len(fields) != len(names):
        raise BrokenLine(f"{len(fields)} columns instead of {len(names)}")
    id, first, second, label = (None if place is None else fields[place] for place in places)
    assert first is not None, "a split has a first text"
    # Every row of a test split is to be answered: where a task's texts are known to be broken, an empty one stays.
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
    """Rows as a table of TEXTS. Raises DataError where there is none, or where one cannot be written as UTF-8."""
    columns = list(zip(*rows))
    if not columns:
        raise DataError(f"{location} has no rows")
    try:
        return pa.table([pa.array(column, field.type) for column, field in zip(columns, TEXTS)], schema=TEXTS)
    except UnicodeEncodeError as error:
        raise DataError(
            f"{location}: {shown(error.object)} holds half of a surrogate pair, which is no character"
        ) from None
