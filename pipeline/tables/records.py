"""Read JSON lines, and choose the text column of a record."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from pipeline.errors import DataError, listed
from pipeline.files.opening import Opened, whole_lines
from pipeline.tables.roles import ABOUT, TEXT
from pipeline.text.documents import Dropped, Record, dropped, one_line

LONGEST_RECORD = 20_000_000
"""Maximum characters of a line. A longer line counts as broken, because parsing may need 50 times the line's memory."""
SAMPLE_RECORDS, SAMPLE_CHARACTERS = 20, 4_000_000
"""Maximum records, and maximum characters, that are read to find the text column."""
LONGEST_ID = 200
"""Maximum characters of a record's own id or url that are kept."""
NAMES = (".jsonl", ".ndjson", ".json")


class NoTextColumn(DataError):
    """Error for a table without a text column."""


def is_jsonl(name: str, head: bytes) -> bool:
    """Whether a file has a JSON name, or its first line is a JSON object. `head` may end within the first line."""
    first, end, _ = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    if name.lower().endswith(NAMES) or not first.startswith(b"{"):
        return name.lower().endswith(NAMES)
    return isinstance(parse_json(first.decode("utf-8", "replace")), dict) or (
        not end and first.startswith(b'{"') and len(head) > LONGEST_ID
    )


def read_jsonl(file: Opened) -> Iterator[Record | Dropped]:
    """Read JSON lines: one object per line, with the text in one column, and optionally an id or url and a title.

    Raises NoTextColumn if no column has the text. A line without such an object is dropped as a broken record.
    """
    return line_records(file.location, file.name, file.blocks, file.column)


def line_records(location: str, name: str, blocks: Iterator[bytes], wanted: str | None) -> Iterator[Record | Dropped]:
    """Yield the records of JSON lines, with the text of column `wanted` (None: `text_column` chooses the column)."""
    rows = parse_lines(whole_lines(blocks, LONGEST_RECORD))
    first = first_rows(rows)
    objects = [value for _, value in first if isinstance(value, dict)]
    if not objects:
        column = wanted or TEXT
    else:
        named = list(dict.fromkeys(key for value in objects for key in value))
        texts = [
            key
            for key in named
            if any(is_text(value.get(key)) for value in objects) or not any(value.get(key) for value in objects)
        ]
        column = text_column(location, named, texts, wanted)
    for number, (line, value) in enumerate(chain(first, rows)):
        yield _record(name, number, line, value, column)


def parse_lines(rows: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, Any]]:
    """Yield (line, parsed value) of each line that is not blank; the value is None if the line is invalid."""
    for line, whole in rows:
        if line.strip():
            yield line, parse_json(line) if whole else None


def parse_json(line: str) -> Any:
    """Return the value of a JSON line; None if the line is invalid, nested too deeply, or has too long a number."""
    try:
        return json.loads(line, strict=False)
    except (ValueError, RecursionError):
        return None


def first_rows(rows: Iterator[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the first rows, enough to find the text column."""
    held: list[tuple[str, Any]] = []
    size = 0
    while len(held) < SAMPLE_RECORDS and size < SAMPLE_CHARACTERS and (row := next(rows, None)):
        held.append(row)
        size += len(row[0])
    return held


def is_text(value: Any) -> bool:
    """Whether a value is a text or a list of texts."""
    return isinstance(value, str) or (
        isinstance(value, list) and value != [] and all(isinstance(part, str) for part in value)
    )


def text_column(location: str, named: Sequence[str], texts: Sequence[str], wanted: str | None) -> str:
    """Return the text column: `wanted`, else "text", else the only column with text except id, title and url.

    `named` are all columns of the table; `texts` are the columns with text. Raises NoTextColumn if the column does not
    exist or has no text, or if several columns are possible. The message lists the columns.
    """
    columns = f"its columns are {listed(named)}" if named else "it has no columns"
    if wanted is not None and wanted not in named:
        raise NoTextColumn(f"{location} has no column {wanted}: {columns}; name the text column with ::column=NAME")
    if wanted is not None or TEXT in named:
        column = wanted or TEXT
        if column not in texts:
            raise NoTextColumn(
                f"{location}: column {column} holds no text: {columns}; name the text column with ::column=NAME"
            )
        return column
    possible = [name for name in texts if name not in ABOUT]
    if len(possible) != 1:
        raise NoTextColumn(
            f"{location} has no column named text, and {len(possible) or 'no'} other columns that may hold the text: "
            f"{columns}; name the text column with ::column=NAME"
        )
    return possible[0]


def _record(name: str, number: int, line: str, value: Any, column: str) -> Record | Dropped:
    """Return a line's value as a record, or a drop if the value is not an object with a text in `column`."""
    if (
        not isinstance(value, dict)
        or column not in value
        or not (value[column] in (None, []) or is_text(value[column]))
    ):
        return dropped(f"{name}:{number}", "broken record", line)
    text = value[column] or ()
    return row_record(name, number, value, [text] if isinstance(text, str) else text)


def row_record(name: str, number: int, about: dict[str, Any], paragraphs: Sequence[str]) -> Record:
    """Return a table row as a record.

    The record's id includes the row's number, because the row's own id or url may not be unique.
    """
    own = next(
        (str(about[key]) for key in ("id", "url") if isinstance(about.get(key), str | int) and about[key] != ""), ""
    )
    id = f"{name}:{number}:{one_line(own[:LONGEST_ID])}" if own else f"{name}:{number}"
    title = about.get("title")
    return Record(id=id, parent=id, title=title if isinstance(title, str) else "", paragraphs=paragraphs)
