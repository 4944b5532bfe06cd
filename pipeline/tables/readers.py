"""Read rows of CSV, TSV, JSON and Parquet files as a stream, with the first line number of each row."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pipeline.errors import BadRow, DataError, shown
from pipeline.files import storage
from pipeline.files.opening import BOM
from pipeline.tables import parquet
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.columns import MissingColumn, require_columns
from pipeline.tables.content import EmptyTable, bare_name, text_lines
from pipeline.tables.separated import csv_rows, tab_separated
from pipeline.tables.spans import require_no_spans

Rows = Iterator[tuple[int, dict[str, Any] | BadRow]]
"""Yields (number, {column: value}) for each row, or in place of its values why it cannot be used.

The number is the line number; in JSON lists, it is the row number. Both count from 1.
"""
Values = Iterator[tuple[int, Sequence[Any]]]
"""Yields (number, values of the selected columns) for each row.

The number is the line number; in Parquet and JSON lists, it is the row number. Both count from 1.
"""
BLANK = f"{BOM} \t\r\n"
"""Characters that may surround a JSON value."""
COLUMN_OPTIONS = "--text, --pair and --label"
"""Options that name columns, for messages."""
ONE_OBJECT = "expected one object per line, or one list of objects"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as a stream, of which only the header, or the first row of JSON, has been read."""

    names: list[str] | None
    """Columns of all rows, as the header names them; None for JSON, whose rows name their own columns."""
    rows: Iterator[tuple[int, Any]]
    """Yields (number, fields in the order of `names`, or an object of JSON, or BadRow), as Rows does."""


def open_table(location: str, otherwise: str | None = None) -> Table:
    """Return a file or URL that is not Parquet as a stream of rows.

    `otherwise` is the suffix whose format is read if the file name shows none. Raises DataError for an unknown format,
    broken quotes, and a file that cannot be read.
    """
    return TEXT_TABLES[_suffix_of(location, otherwise)](location)


def _suffix_of(location: str, otherwise: str | None = None) -> str:
    """Return the suffix of a file name that tells the format, or `otherwise`. Raises DataError if both are missing."""
    name = bare_name(location)
    suffix = next((suffix for suffix in (*TEXT_TABLES, PARQUET) if name.endswith(suffix)), otherwise)
    if suffix is None:
        formats = ", ".join((*TEXT_TABLES, PARQUET))
        raise DataError(f"{location}: the file name must tell the format by ending in one of {formats}")
    return suffix


def rows_in(
    location: str,
    columns: Sequence[str],
    bad: BadRows | None = None,
    optional: Sequence[str] = (),
    options: str = COLUMN_OPTIONS,
) -> Values:
    """Yield the selected columns of a file's rows, unconverted.

    In JSON, a row may lack those columns of `optional` that another row has; its values are then None. Raises DataError
    for a missing column; the message names the `options` that set columns.
    """
    bad, remedy = bad or BadRows(), f"name yours with {options}"
    if _suffix_of(location) == PARQUET:
        yield from _parquet_values(location, columns, remedy)
        return
    table = open_table(location)
    rows = bad.usable(table.rows)
    if table.names is None:
        yield from _json_values(location, rows, columns, columns_among(optional, location), bad, remedy)
        return
    if not table.names:
        raise EmptyTable(location)
    require_columns(location, table.names, columns, f"{remedy} (no header line? put one before the rows)")
    indices = [table.names.index(name) for name in columns]
    for line, fields in rows:
        yield line, [fields[index] for index in indices]


def columns_among(names: Sequence[str], location: str) -> tuple[str, ...]:
    """Return those of `names` that are columns of a table; in JSON, these are the columns that any row has."""
    if not names:
        return ()
    if _suffix_of(location) == PARQUET:
        found = set(parquet.column_names(location))
    elif (table := open_table(location)).names is not None:
        found = set(table.names)
    else:
        found = {name for _, row in BadRows(skip=True).usable(table.rows) for name in row}
    return tuple(name for name in names if name in found)


def has_columns(location: str, names: Sequence[str]) -> bool:
    """Return whether a table has these columns; in JSON, where each row names its columns, the first row counts."""
    return first_row(location, names) is not None


def first_row(location: str, names: Sequence[str]) -> Sequence[Any] | None:
    """Return these columns of a table's first row; empty if the table has no rows, None if it lacks a column."""
    try:
        if _suffix_of(location) == PARQUET or (table := open_table(location)).names is not None:
            return next(rows_in(location, names, BadRows(skip=True)), (1, ()))[1]
        for _, row in BadRows(skip=True).usable(table.rows):
            return [row[name] for name in names] if row.keys() >= set(names) else None
        return ()
    except EmptyTable:
        return ()
    except DataError:
        return None


def _read_csv(location: str) -> Table:
    """Read CSV (`csv_rows`)."""
    return _with_header(location, csv_rows(location, text_lines(location)))


def _read_tsv(location: str) -> Table:
    """Read tab-separated fields; quotes are plain characters."""
    return _with_header(location, tab_separated(text_lines(location)))


def _read_json(location: str) -> Table:
    """Read one object per line, or one list of objects; without any, there are no columns."""
    first, lines = _first_line(text_lines(location))
    return Table(names=None if first else [], rows=json_rows(location, lines))


def _read_txt(location: str) -> Table:
    """Read JSON if the first line begins an object or a list of objects, else tab-separated fields."""
    first, lines = _first_line(text_lines(location))
    if first.lstrip(BLANK).startswith("{") or first.strip(BLANK) == "[" or is_one_list(first):
        return Table(names=None, rows=json_rows(location, lines))
    return _with_header(location, tab_separated(lines))


def _first_line(lines: Iterator[str]) -> tuple[str, Iterator[str]]:
    """Return the first line that is not blank, "" if all are, and all lines."""
    held = []
    for line in lines:
        held.append(line)
        if line.strip(BLANK):
            return line, chain(held, lines)
    return "", iter(held)


def _with_header(location: str, rows: Iterator[tuple[int, Sequence[str]]]) -> Table:
    """Return rows of fields, of which the first is the header, as a table; no names if there is no header."""
    _, names = next(rows, (1, ()))
    return Table(names=list(names), rows=_rows_of_length(location, rows, len(names)))


def _rows_of_length(
    location: str, rows: Iterator[tuple[int, Sequence[str]]], length: int
) -> Iterator[tuple[int, Sequence[str] | BadRow]]:
    """Yield the fields of each row. Rows with more or fewer fields than the header are bad rows."""
    for line, fields in rows:
        if len(fields) == length:
            yield line, fields
            continue
        message = (
            f"{location}:{line}: {len(fields)} columns where the first line names {length}; "
            "enclose a text that holds a separator in quotes (CSV)"
        )
        yield line, BadRow(message, "number-of-columns")


def _json_values(
    location: str,
    rows: Iterator[tuple[int, dict[str, Any]]],
    columns: Sequence[str],
    optional: Sequence[str],
    bad: BadRows,
    remedy: str,
) -> Values:
    """Yield the selected columns of JSON objects; columns of `optional` that a row lacks are None.

    Raises DataError if the first row lacks a column; if bad rows are skipped, only if no row has all columns.
    """
    complete, first_error = False, None
    for number, row in rows:
        value, where = dict.fromkeys(optional) | row, f"{location}:{number}"
        missing = [name for name in columns if name not in value]
        if missing and not complete:
            for column in value:
                require_no_spans(where, column, value[column])  # exports have columns of their own
            first_error = first_error or MissingColumn(where, missing[0], list(value), remedy)
            if not bad.skip:
                raise first_error
        if missing:
            bad.take(BadRow(str(MissingColumn(where, missing[0], list(value))), "no-column"))
        else:
            complete = True
            yield number, [value[name] for name in columns]
    if first_error is not None and not complete:
        raise first_error


def json_rows(location: str, lines: Iterable[str]) -> Rows:
    """Yield (line number, object) of JSON lines, or (index from 1, object) of one list, which is read as a whole.

    Lines that are not JSON, and values that are not objects, are bad rows. Raises DataError for a list that is not
    JSON.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip(BLANK))
    for number, line in numbered:
        if line.lstrip(BLANK).startswith("["):
            held = [(number, line), *numbered]
            text = "".join(line for _, line in held)
            values = enumerate(_list_of(location, text), 1) if is_one_list(text) else _parsed(location, held)
        else:
            values = _parsed(location, chain([(number, line)], numbered))
        for number, value in values:
            if not isinstance(value, dict | BadRow):
                value = BadRow(f"{location}:{number}: {shown(value)} is not an object; {ONE_OBJECT}", "no-object")
            yield number, value


def is_one_list(text: str) -> bool:
    """Return whether a text begins like one JSON list of objects, or an empty one; JSON lines begin with an object."""
    rest = text.lstrip(BLANK)
    return rest.startswith("[") and rest[1:].lstrip().startswith(("{", "]"))


def _list_of(location: str, text: str) -> list[Any]:
    """Parse a text as a JSON list. Raises DataError if it is not JSON."""
    try:
        return json.loads(text.strip(BLANK))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{location}: not JSON ({storage.first_line(error)}); {ONE_OBJECT}") from None


def _parsed(location: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Any]]:
    """Yield the value of each JSON line. A line that is not JSON is a bad row."""
    for number, line in lines:
        try:
            yield number, json.loads(line.strip(BLANK))
        except (ValueError, RecursionError) as error:
            message = f"{location}:{number}: not JSON ({storage.first_line(error)}); {ONE_OBJECT}"
            yield number, BadRow(message, "not-json")


def _parquet_values(location: str, columns: Sequence[str], remedy: str) -> Values:
    """Yield the selected columns of a Parquet file."""
    require_columns(location, parquet.column_names(location), columns, remedy)
    number = 0
    for table in parquet.tables_in(location, columns):
        for values in zip(*(table[name].to_pylist() for name in columns)):
            number += 1
            yield number, values


PARQUET = ".parquet"
TEXT_TABLES: dict[str, Callable[[str], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".json": _read_json,
    ".txt": _read_txt,
}
"""Suffix of a file name -> function that reads a file of this format as a table."""
