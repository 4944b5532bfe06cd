"""The texts of any file: its lines, the cells of a table, or the strings in JSON."""

import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.tables.content import SURROGATE, bare_name, content_of, lines, text_lines
from pipeline.tables.separated import csv_rows
from pipeline.text.ngrams import LEAST_WORDS, WordSpans


def texts_of(location: str) -> list[str]:
    """Return the distinct texts of a file, in their order.

    The cells of Parquet, CSV and of lines with tabs, and the strings of JSON, are texts. A column, or key, is left out
    if none of its texts has five words: ids and labels. In other files, each line is a text. Compressed files are
    decompressed. Raises DataError if the file cannot be read, or has no text.
    """
    columns: dict[str, dict[str, None]] = {}
    for column, text in _cells(location):
        if text.strip():
            columns.setdefault(column, {})[SURROGATE.sub("\ufffd", text)] = None
    if len(columns) > 1:
        columns = {name: texts for name, texts in columns.items() if WordSpans.of(texts).lengths.max() >= LEAST_WORDS}
    if not columns:
        raise DataError(f"{location} has no text: give a file with a text of {LEAST_WORDS} words or more")
    return list(dict.fromkeys(text for texts in columns.values() for text in texts))


def _cells(location: str) -> Iterator[tuple[str, str]]:
    """Yield (column, text) of each cell of a file."""
    name = bare_name(location)
    if name.endswith(".parquet"):
        return _of_parquet(location, content_of(location))
    if name.endswith((".json", ".jsonl", ".ndjson")):
        return _of_json(location, "".join(text_lines(location)))
    if name.endswith(".csv"):
        return _of_rows(fields for _, fields in csv_rows(location, text_lines(location)))
    return _of_rows(line.split("\t") for line in lines(location))


def _of_rows(rows: Iterable[list[str]]) -> Iterator[tuple[str, str]]:
    """Yield the cells of rows. A first line of several cells, none of which has five words, names the columns."""
    for number, fields in enumerate(rows):
        if number or len(fields) == 1 or WordSpans.of(fields).lengths.max() >= LEAST_WORDS:
            yield from zip(map(str, range(len(fields))), fields)


def _of_parquet(location: str, content: bytes) -> Iterator[tuple[str, str]]:
    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{location} cannot be read as Parquet: {storage.first_line(error)}") from error
    for name in table.column_names:
        for value in table[name].to_pylist():
            yield from _strings(value, name)


def _of_json(location: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the strings of one JSON value, or of one value per line."""
    try:
        values = [json.loads(text)]
    except (ValueError, RecursionError):
        values = [_of_line(location, number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    yield from _strings(values, "")


def _of_line(location: str, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{location}:{number}: not JSON ({storage.first_line(error)})") from None


def _strings(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield (key, string) of all strings in a value of JSON or Parquet."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from _strings(member, name)
    elif isinstance(value, list):
        for member in value:
            yield from _strings(member, key)
