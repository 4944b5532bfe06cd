"""Read the texts to embed, as rows with id, title and text. A part has limited rows and characters."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.embed import Embed
from pipeline.errors import DataError
from pipeline.predict.inputs import RowFile, column_names, list_inputs, names_until, parts_of
from pipeline.tables.columns import MissingColumn
from pipeline.tables.roles import ID, TEXT, TITLE

ROWS_AT_ONCE = 256
"""Rows that are read before their characters are counted."""
CHARACTERS_PER_PART, CHARACTERS_BEFORE = 1_000_000, 4_000_000
"""Maximum characters of a part, about 1,000 chunks of 256 tokens, and the maximum of earlier versions.

A single longer text is a part of its own.
"""


@dataclass(frozen=True, kw_only=True)
class InputColumns:
    """Columns of the input files. None means the default: columns "id" and "title", if they exist."""

    text: str
    id: str | None
    title: str | None

    @classmethod
    def of(cls, config: Embed) -> "InputColumns":
        return cls(text=config.text, id=config.id, title=config.title)


def text_files(config: Embed) -> list[RowFile]:
    """Return the input files. The output folder may lie in the input folder; its files are left out.

    Raises ConfigError if there is no file, and DataError for a file of unknown format.
    """
    return list_inputs(config.input, "auto", tags=False, remedy="", without=[config.output])


def text_tables(
    file: RowFile, name: str, columns: InputColumns, rows_per_part: int, characters_per_part: int = CHARACTERS_PER_PART
) -> Iterator[pa.Table]:
    """Yield the parts of a file: tables with the columns id, text and title, whatever columns the file has.

    The id of a row without an id is its number from 1, after `name` and a colon unless `name` is empty. A part
    has at most `rows_per_part` texts and `characters_per_part` characters, or one longer text. Raises DataError for a
    file that cannot be read, a missing column, and a text, id or title that is not one.
    """
    wanted = _found_columns(file, columns)
    first, held, rows, characters = 1, [], 0, 0
    for table in parts_of(file, ROWS_AT_ONCE):
        texts, start = _texts_of(table, file.location, name, wanted, first), 0
        first += texts.num_rows
        for row, size in enumerate(pc.fill_null(pc.utf8_length(texts[TEXT]), 0).to_pylist()):
            if rows and (rows == rows_per_part or characters + size > characters_per_part):
                yield pa.concat_tables([*held, texts.slice(start, row - start)]).combine_chunks()
                held, rows, characters, start = [], 0, 0, row
            rows, characters = rows + 1, characters + size
        held.append(texts.slice(start))
    if rows:
        yield pa.concat_tables(held).combine_chunks()


def _found_columns(file: RowFile, columns: InputColumns) -> dict[str, str]:
    """Return ID, TEXT and TITLE -> column of the file. ID and TITLE are left out if they are neither named nor present.

    The columns are those of the whole file, so that it does not matter which of its rows have a column. Raises
    DataError for a named column that no row has.
    """
    names = column_names(file)
    _require_named(file, names, columns)
    ids, titles = columns.id or ID, columns.title or TITLE
    found = {ID: ids, TEXT: columns.text} if ids in names else {TEXT: columns.text}
    return found | {TITLE: titles} if titles in names and titles != columns.text else found


def require_columns(files: Sequence[RowFile], columns: InputColumns) -> None:
    """Raise DataError if a file lacks a column that is named, and for a file that cannot be read.

    Of a file that has the columns, only the beginning is read.
    """
    named = [name for name in (columns.text, columns.id, columns.title) if name is not None]
    for file in files:
        _require_named(file, names_until(file, named), columns)


def _require_named(file: RowFile, names: Sequence[str], columns: InputColumns) -> None:
    """Raise DataError if a named column is not among `names`, the columns of a file. An empty file has no columns."""
    for flag, column in (("text", columns.text), ("id", columns.id), ("title", columns.title)):
        if names and column is not None and column not in names:
            raise MissingColumn(file.location, column, names, f"name the right one with --{flag}")


def _texts_of(table: pa.Table, location: str, name: str, wanted: Mapping[str, str], first: int) -> pa.Table:
    """Return id, text and title of rows, with null titles if the file has none.

    `wanted`: see `_found_columns`; `first`: number of the first row.
    """
    missing = pa.chunked_array([pa.nulls(table.num_rows, pa.string())])
    given = {
        what: _strings(table[column] if column in table.column_names else missing, location, what, column, first)
        for what, column in wanted.items()
    } | ({} if TITLE in wanted else {TITLE: missing})
    if ID not in wanted:
        before = f"{name}:" if name else ""
        numbered = pa.array([f"{before}{first + row}" for row in range(table.num_rows)], pa.string())
        return pa.table({ID: numbered} | given)
    if given[ID].null_count:
        row = first + given[ID].is_null().to_pylist().index(True)
        raise DataError(
            f"{location}, row {row}: column {wanted[ID]} has no id; fill it, or name another column with --id"
        )
    return pa.table(given)


def _strings(values: pa.ChunkedArray, location: str, what: str, column: str, first: int) -> pa.ChunkedArray:
    """Return values as text; ids may be whole numbers, and titles any single values. Raises DataError for others."""
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
    if is_text or (what == ID and pa.types.is_integer(kind)) or (what == TITLE and not pa.types.is_nested(kind)):
        try:
            return values.cast(pa.string())
        except pa.ArrowException:  # bytes that are not UTF-8, and types without a text
            pass
    raise DataError(
        f"{location}, rows {first} to {first + len(values) - 1}: column {column} holds {kind}, which is not text; name "
        f"the right column with --{what}"
    )


def short_names(files: Sequence[RowFile]) -> list[str]:
    """Return the name of each file, for use in ids: the file name if all file names differ, else the location."""
    names = [file.location.rpartition("/")[2] for file in files]
    return names if len(set(names)) == len(names) else [file.location for file in files]
