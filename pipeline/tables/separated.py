"""Read rows whose fields are separated: by tabs, or in CSV by a comma or another character, with quotes."""

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from pipeline.errors import BadRow
from pipeline.files.opening import BOM, is_blank, without_end

SEPARATORS = ",;\t|"
"""Possible separators of a .csv file, the most usual first."""
NAMED_SEPARATOR = re.compile(r'"?sep=(?P<separator>.)(?P=separator)*"?')
"""A first line that tells Excel the separator, such as "sep=;". Programs may add quotes, or one for each column."""


def tab_separated(lines: Iterable[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield (line number from 1, fields) of each non-blank line; quotes are plain characters."""
    for number, line in enumerate(lines, 1):
        text = line.removesuffix("\n").removesuffix("\r")
        if text.strip(BOM):
            yield number, text.split("\t")


def csv_rows(location: str, lines: Iterable[str], separator: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, fields) of each row as `csv_fields`; raise the error of broken quotes.

    After them, the rest of a file may stand in one field, so that a row with broken quotes is never skipped.
    """
    for number, fields in csv_fields(location, lines, separator):
        if isinstance(fields, BadRow):
            raise fields
        yield number, fields


def csv_fields(
    location: str, lines: Iterable[str], separator: str | None = None, longest: int = sys.maxsize
) -> Iterator[tuple[int, list[str] | BadRow]]:
    """Yield (number of the first line, fields) of each non-blank row of RFC 4180 CSV, the header included.

    Double quotes surround fields that hold separators or line ends (LF, CR LF or CR). Unless `separator` is given, the
    first non-blank line gives it: a line that names it, which is skipped, or the header. In place of a line with broken
    quotes, or with a field of more than `longest` characters, yield the error. Raise it if more than one line was read:
    after an open quote, the rest of a file may stand in one field.
    """
    csv.field_size_limit(longest)  # the default of 131,072 characters is too small for long texts
    lines, skipped = _at_line_ends(lines), 0
    if separator is None:
        skipped, header = next(
            ((number, line) for number, line in enumerate(lines) if not is_blank(line.strip())), (0, "")
        )
        separator = _named_separator(header)
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
            broken = BadRow(
                f"{location}:{line}: quotes are broken in the row that begins here ({error}); "
                "double the quotes within a text and enclose it in quotes",
                "broken-quotes",
            )
            if skipped + rows.line_num > line:
                raise broken from error
            yield line, broken
            continue
        if fields is None:
            return
        if fields and not (len(fields) == 1 and fields[0] and is_blank(fields[0])):
            yield line, fields


def _at_line_ends(lines: Iterable[str]) -> Iterator[str]:
    """Split lines, which end at LF, also at a CR alone: a file may have no other line ends."""
    for line in lines:
        if "\r" in line and "\r" in without_end(line):
            yield from io.StringIO(line, newline="")
        else:
            yield line


def separator_of(header: str) -> str:
    """Return the first of SEPARATORS that splits a header line; a comma if none does."""
    for separator in SEPARATORS:
        try:
            if len(next(csv.reader([header], delimiter=separator, strict=True), [])) > 1:
                return separator
        except csv.Error:  # the header's quotes do not fit this separator
            continue
    return SEPARATORS[0]


def _named_separator(line: str) -> str | None:
    """Return the separator that a file's first line names; None for other lines."""
    match = NAMED_SEPARATOR.fullmatch(line.strip("\ufeff\r\n"))
    return match["separator"] if match else None
