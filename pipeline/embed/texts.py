"""Read the texts to embed: rows with id, title and text, in parts of limited rows and characters."""

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
"""Maximum characters of a part, unless its only text is longer: about 4,000 chunks of 256 tokens."""
ID, TITLE, TEXT = "id", "title", "text"


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns of the input files; None: the default of the setting."""

    text: str
    id: str | None
    title: str | None

    @classmethod
    def of(cls, config: Embed) -> "Columns":
        return cls(text=config.text, id=config.id, title=config.title)


def text_files(config: Embed) -> list[InputFile]:
    """Return the input files, without the vectors, which may be in the same folder.

    Raises ConfigError if there is no file, and DataError for a file of unknown form.
    """
    files = list_inputs(config.input, "auto", tags=False, remedy="")
    remaining = [file for file in files if not file.location.startswith(f"{config.output}/")]
    if not remaining:
        raise ConfigError(f"input ({config.input}) has no file except the output: give another folder")
    return remaining


def text_tables(file: InputFile, name: str, columns: Columns, rows_per_part: int) -> Iterator[pa.Table]:
    """Yield the parts of a file: tables with the columns id, text and, if the file has titles, title.

    `name` begins the ids of rows without an id. Parts depend on the file, the columns and `rows_per_part` alone.
    Raises DataError for a file that cannot be read, a missing column, and a text or id that is not one.
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
    """Return one table of several; a table without titles gets null for them."""
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _texts_of(table: pa.Table, location: str, name: str, columns: Columns, first: int) -> pa.Table:
    """Return id, title and text of a table's rows; `first` is the number of its first row, from 1."""
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
    """Return values as text; for `what` id, whole numbers too. Raises DataError for values of other types."""
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
    """Return a name per file for ids: the file's own name if all names differ, else its location."""
    names = [file.location.rpartition("/")[2] for file in files]
    return names if len(set(names)) == len(names) else [file.location for file in files]
