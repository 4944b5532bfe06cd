"""Read selected columns of CSV, TSV, JSON and Parquet files, with the first line number of each row."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import BadRow, DataError, listed, shown
from pipeline.files import storage
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.columns import require_columns, tab_separated
from pipeline.tables.content import BOM, bare_name, content_of, decoded, is_blank
from pipeline.tables.spans import require_no_spans
from pipeline.text.csv_separator import named_separator

Values = Iterator[tuple[int, Sequence[Any]]]
"""Yields (number, values of the selected columns) for each row.

The number is the line number; in Parquet and JSON lists, it is the row number. Both count from 1.
"""
Reader = Callable[[str, bytes, Sequence[str], BadRows], Values]
"""(location, content, selected columns, bad-row policy) -> rows."""
SEPARATORS = ",;\t|"
"""Possible separators of a .csv file, the most usual first."""
BLANK = f"{BOM} \t\r\n"
"""Characters that may surround a JSON value."""
COLUMN_OPTIONS = "--text, --pair and --label"
"""Options that name columns, for messages."""
ONE_OBJECT = "expected one object per line, or one list of objects"


class EmptyTable(DataError):
    """A file without a header and without rows."""

    def __init__(self, location: str) -> None:
        super().__init__(f"{location} is empty: give a file with rows")


class MissingColumn(DataError):
    """A table lacks a column; the message says that COLUMN_OPTIONS name columns."""


def reader_of(location: str) -> Reader:
    """Return the reader for a file name. Raises DataError for an unknown format."""
    name = bare_name(location)
    reader = next((read for suffix, read in READERS.items() if name.endswith(suffix)), None)
    if reader is None:
        raise DataError(f"{location}: the file name must tell the format by ending in one of {', '.join(READERS)}")
    return reader


def rows_in(location: str, columns: Sequence[str], bad: BadRows | None = None, optional: Sequence[str] = ()) -> Values:
    """Return the selected columns of a file's rows, unconverted.

    In JSON, a row may lack those columns of `optional` that another row has; its values are then None.
    """
    read, content = reader_of(location), content_of(location)
    if read is _read_json and optional:
        read = partial(_read_json, optional=columns_among(optional, location, content))
    return read(location, content, columns, bad or BadRows())


def columns_among(names: Sequence[str], location: str, content: bytes) -> tuple[str, ...]:
    """Return those of `names` that are columns of a table; in JSON, these are the columns that any row has."""
    if reader_of(location) is not _read_json:
        return tuple(name for name in names if has_columns(location, (name,), content))
    rows = json_rows(location, decoded(location, content), BadRows(skip=True))
    found = {name for _, row in rows for name in row}
    return tuple(name for name in names if name in found)


def has_columns(location: str, names: Sequence[str], content: bytes) -> bool:
    """Return whether a table has these columns; in JSON, where each row names its columns, the first row counts."""
    return first_row(location, names, content) is not None


def first_row(location: str, names: Sequence[str], content: bytes) -> Sequence[Any] | None:
    """Return these columns of a table's first row; empty if the table has no rows, None if it lacks a column."""
    try:
        return next(reader_of(location)(location, content, names, BadRows(skip=True)), (1, ()))[1]
    except EmptyTable:
        return ()
    except DataError:
        return None


def _require_named(location: str, names: Sequence[str], wanted: Sequence[str], hint: str = "") -> None:
    """Raise DataError unless the file's columns, `names`, include each of `wanted` once.

    The message names the options that set columns, and ends in `hint`.
    """
    if missing := [name for name in wanted if name not in names]:
        raise MissingColumn(
            f"{location} has no column {missing[0]}: its columns are {listed(names)}; "
            f"name yours with {COLUMN_OPTIONS}{hint}"
        )
    require_columns(location, names, wanted)


def _read_csv(location: str, content: bytes, wanted: Sequence[str], bad: BadRows) -> Values:
    """Read RFC 4180 CSV: comma-separated, with double quotes around fields that hold separators or line ends.

    If the header has no comma, the separator may be another of SEPARATORS, or the one that the first line names
    (`named_separator`).
    """
    lines = io.StringIO(decoded(location, content), newline="")
    return _select_columns(location, csv_rows(location, lines), wanted, bad)


def separator_of(header: str) -> str:
    """Return the first of SEPARATORS that splits a header line; a comma if none does."""
    for separator in SEPARATORS:
        try:
            if len(next(csv.reader([header], delimiter=separator, strict=True), [])) > 1:
                return separator
        except csv.Error:  # the header's quotes do not fit this separator
            continue
    return SEPARATORS[0]


def csv_rows(location: str, lines: Iterable[str], separator: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, fields) of each non-blank row of a CSV file, the header included.

    Unless `separator` is given, the first non-blank line gives it: a line that names it, which is skipped, or the
    header. Raises DataError for broken quotes.
    """
    csv.field_size_limit(sys.maxsize)  # the default of 131,072 characters is too small for long texts
    lines, skipped = iter(lines), 0
    if separator is None:
        skipped, header = next(
            ((number, line) for number, line in enumerate(lines) if not is_blank(line.strip())), (0, "")
        )
        separator = named_separator(header)
        if separator is None:
            lines, separator = chain([header], lines), separator_of(header)
        else:
            skipped += 1
    rows = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        line = skipped + rows.line_num + 1
        try:
            fields = next(rows, None)
        except csv.Error as error:
            raise DataError(
                f"{location}:{line}: quotes are broken in the row that begins here ({error}); "
                "double the quotes within a text and enclose it in quotes"
            ) from None
        if fields is None:
            return
        if fields and not (len(fields) == 1 and fields[0] and is_blank(fields[0])):
            yield line, fields


def _read_tsv(location: str, content: bytes, wanted: Sequence[str], bad: BadRows) -> Values:
    """Read tab-separated fields; quotes are plain characters."""
    return _select_columns(location, tab_separated(location, content), wanted, bad)


def _select_columns(
    location: str, rows: Iterator[tuple[int, Sequence[str]]], wanted: Sequence[str], bad: BadRows
) -> Values:
    """Yield the selected columns of the rows after the header. Rows with more or fewer columns are bad rows."""
    _, names = next(rows, (1, ()))
    if not names:
        raise EmptyTable(location)
    _require_named(location, names, wanted, " (no header line? put one before the rows)")
    indices = [names.index(name) for name in wanted]
    for line, fields in rows:
        if len(fields) != len(names):
            bad.take(BadRow(number_of_columns(location, line, fields, names), "number-of-columns"))
        else:
            yield line, [fields[index] for index in indices]


def number_of_columns(location: str, line: int, fields: Sequence[str], names: Sequence[str]) -> str:
    """Return the message for a row with more or fewer columns than the header."""
    return (
        f"{location}:{line}: {len(fields)} columns where the first line names {len(names)}; "
        "enclose a text that holds a separator in quotes (CSV)"
    )


def _read_json(
    location: str, content: bytes, wanted: Sequence[str], bad: BadRows, optional: Sequence[str] = ()
) -> Values:
    """Read one object per line, or one list of objects; columns of `optional` that a row lacks are None."""
    first, text = True, decoded(location, content)
    if not text.strip(BLANK):
        raise EmptyTable(location)
    for number, row in json_rows(location, text, bad):
        value = dict.fromkeys(optional) | row
        if first:
            for column in value if set(wanted) - value.keys() else ():
                require_no_spans(f"{location}:{number}", column, value[column])  # exports have columns of their own
            _require_named(f"{location}:{number}", list(value), wanted)
        first = False
        if missing := [name for name in wanted if name not in value]:
            message = f"{location}:{number} has no column {missing[0]}: its columns are {listed(value)}"
            bad.take(BadRow(message, "no-column"))
        else:
            yield number, [value[name] for name in wanted]


def json_rows(location: str, text: str, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of JSON lines, or (index from 1, object) of one list.

    Lines that are not JSON, and values that are not objects, are bad rows.
    """
    one_list = is_one_list(text)
    values = enumerate(_list_of(location, text), 1) if one_list else enumerate(text.split("\n"), 1)
    for number, value in values:
        if not one_list and not value.strip(BLANK):
            continue
        try:
            row = as_object(location, number, value if one_list else parse_json_line(location, number, value))
        except BadRow as error:
            bad.take(error)
        else:
            yield number, row


def is_one_list(text: str) -> bool:
    """Return whether a text begins like one JSON list of objects; JSON lines begin with an object instead."""
    rest = text.lstrip(BLANK)
    return rest.startswith("[") and rest[1:].lstrip().startswith("{")


def _list_of(location: str, text: str) -> list[Any]:
    """Parse a text as a JSON list. Raises DataError if it is not JSON."""
    try:
        return json.loads(text.strip(BLANK))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{location}: not JSON ({storage.first_line(error)}); {ONE_OBJECT}") from None


def parse_json_line(location: str, line: int, text: str) -> Any:
    """Parse a line as JSON. Raises BadRow if it is not JSON."""
    try:
        return json.loads(text.strip(BLANK))
    except (ValueError, RecursionError) as error:
        raise BadRow(f"{location}:{line}: not JSON ({storage.first_line(error)}); {ONE_OBJECT}", "not-json") from None


def as_object(location: str, number: int, value: Any) -> dict[str, Any]:
    """Return the value of a line or list item, which must be an object. Raises BadRow if it is not."""
    if not isinstance(value, dict):
        raise BadRow(f"{location}:{number}: {shown(value)} is not an object; {ONE_OBJECT}", "no-object")
    return value


def _read_parquet(location: str, content: bytes, wanted: Sequence[str], bad: BadRows) -> Values:
    """Read columns of a Parquet file."""
    if not content:
        raise EmptyTable(location)
    try:
        file = pq.ParquetFile(io.BytesIO(content))
        _require_named(location, file.schema_arrow.names, wanted)
        table = file.read(columns=list(wanted))
        columns = [table[name].to_pylist() for name in wanted]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{location} cannot be read as Parquet: {storage.first_line(error)}") from error
    yield from enumerate(zip(*columns), 1)


READERS: dict[str, Reader] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".json": _read_json,
    ".txt": _read_tsv,
    ".parquet": _read_parquet,
}
