"""Read the texts to embed, as rows with id, title and text. A part has limited rows and characters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.embed import Embed
from pipeline.errors import ConfigError, DataError, listed
from pipeline.predict.inputs import InputFile, list_inputs, parts_of

ROWS_AT_ONCE = 256
"""Rows that are read before their characters are counted."""
CHARACTERS_PER_PART = 4_000_000
"""Maximum characters of a part: about 4,000 chunks of 256 tokens. A single longer text is a part of its own."""
ID, TITLE, TEXT = "id", "title", "text"


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns of the input files. None means the default: columns "id" and "title", if they exist."""

    text: str
    id: str | None
    title: str | None

    @classmethod
    def of(cls, config: Embed) -> "Columns":
        return cls(text=config.text, id=config.id, title=config.title)


def text_files(config: Embed) -> list[InputFile]:
    """Return the input files. The output folder may lie in the input folder; its files are left out.

    Raises ConfigError if there is no file, and DataError for a file of unknown format.
    """
    files = list_inputs(config.input, "auto", tags=False, remedy="")
    remaining = [file for file in files if not file.location.startswith(f"{config.output}/")]
    if not remaining:
        raise ConfigError(f"input ({config.input}) has no file except the output: give another folder")
    return remaining


def text_tables(file: InputFile, name: str, columns: Columns, rows_per_part: int) -> Iterator[pa.Table]:
    """Yield the parts of a file: tables with the columns id, text and, if the file has titles, title.

    If the file has no ids, they are made of `name` and the row's number. Parts depend only on the file, the columns and
    `rows_per_part`. Raises DataError for an unreadable file, a missing column, and a text or id of another type.
    """
    first, held, rows, characters = 1, [], 0, 0
    for table in parts_of(file, ROWS_AT_ONCE):
        texts, start = _texts_of(table, file.location, name, columns, first), 0
        first += texts.num_rows
        for row, size in enumerate(pc.fill_null(pc.utf8_length(texts[TEXT]), 0).to_pylist()):
            if rows and (rows == rows_per_part or characters + size > CHARACTERS_PER_PART):
                yield _joined([*held, texts.slice(start, row - start)])
                held, rows, characters, start = [], 0, 0, row
            rows, characters = rows + 1, characters + size
        held.append(texts.slice(start))
    if rows:
        yield _joined(held)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Join tables into one table. A table without titles gets null titles."""
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _texts_of(table: pa.Table, location: str, name: str, columns: Columns, first: int) -> pa.Table:
    """Return id, title and text of a table's rows. `first` is the number of the table's first row, counted from 1."""
    required = [("text", columns.text), ("id", columns.id), ("title", columns.title)]
    for flag, column in required:
        if column is not None and column not in table.column_names:
            raise DataError(
                f"{location} has no column {column}: its columns are {listed(table.column_names)}; name the right one "
                f"with --{flag}"
            )
    ids, titles = columns.id or ID, columns.title or TITLE
    found = {ID: _ids(table, location, name, ids, first), TEXT: _strings(table[columns.text], location, TEXT, first)}
    if titles in table.column_names and titles != columns.text:
        found[TITLE] = pc.cast(table[titles], pa.string())
    return pa.table(found)


def _ids(table: pa.Table, location: str, name: str, column: str, first: int) -> pa.Array | pa.ChunkedArray:
    """Return the ids of rows as text. Raises DataError for a row without an id."""
    if column not in table.column_names:
        return pa.array([f"{name}:{first + row}" for row in range(table.num_rows)], pa.string())
    ids = _strings(table[column], location, ID, first)
    if ids.null_count:
        row = first + ids.is_null().to_pylist().index(True)
        raise DataError(f"{location}, row {row}: column {column} has no id; fill it, or name another column with --id")
    return ids


def _strings(values: pa.ChunkedArray, location: str, what: str, first: int) -> pa.ChunkedArray:
    """Return values as text. Ids may also be integers. Raises DataError for values of other types."""
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return values.cast(pa.string())
    if what == ID and pa.types.is_integer(kind):
        return values.cast(pa.string())
    raise DataError(
        f"{location}, rows {first} to {first + len(values) - 1}: column {what} holds {kind}, which is not text; name "
        f"the right column with --{what}"
    )


def short_names(files: Sequence[InputFile]) -> list[str]:
    """Return the name of each file, for use in ids: the file name if all file names differ, else the location."""
    names = [file.location.rpartition("/")[2] for file in files]
    return names if len(set(names)) == len(names) else [file.location for file in files]
