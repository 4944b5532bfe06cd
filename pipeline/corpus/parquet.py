"""Read Parquet files, such as data sets of the Hugging Face hub."""

import io
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from pipeline.corpus.plain import sentence_blocks
from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.files.opening import LocatedStream, Opened, compression_by_name
from pipeline.files.web import WEB
from pipeline.tables.records import row_record, text_column
from pipeline.tables.roles import ABOUT
from pipeline.text.documents import Dropped, Record, dropped

MAGIC = b"PAR1"
BATCH_ROWS = 256
"""Rows decoded at once. This limit bounds memory, because row groups may have any size."""
BUFFER_BYTES = 1 << 20
BROKEN = (pa.ArrowException, OSError, ValueError, LookupError, OverflowError)
"""Errors that pyarrow raises for damaged files."""


def is_parquet(name: str, head: bytes) -> bool:
    """Whether a file is Parquet, by its name or first bytes."""
    return head.startswith(MAGIC) or name.lower().endswith(".parquet")


def _open_random(location: str) -> Any:
    """Open a stored file for random access. Raises whatever errors the file system raises."""
    system, path = storage.filesystem(location)
    return system.open_input_file(path)


class Seekable(LocatedStream):
    """Stored file with random access; read errors name the file's location."""

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.stream.seek(offset, whence)
        return self.stream.tell()

    def tell(self) -> int:
        return self.stream.tell()


@contextmanager
def _random_access(file: Opened) -> Generator[Any]:
    """Open a file for random access; a web or compressed file is first copied to a temporary file."""
    if not file.location.startswith(WEB) and compression_by_name(file.location) is None:
        with Seekable(file.location, _open_random) as stream:
            yield stream
        return
    with tempfile.TemporaryFile() as stream:
        for block in file.blocks:
            stream.write(block)
        stream.seek(0)
        yield stream


def read_parquet(file: Opened) -> Iterator[Record | Dropped]:
    """Yield one record per row: the text of one column and, if such columns exist, an id or url and a title.

    Raises NoTextColumn if no column has the text. If the file cannot be decoded, the rows before the damage are kept,
    and the last item is a drop with the reason "damaged file".
    """
    rows = _parquet_rows(file)
    for number, row in enumerate(rows):
        yield row if isinstance(row, Dropped) else row_record(file.name, number, row[0], row[1])


def read_parquet_sentences(file: Opened) -> Iterator[Record | Dropped]:
    """Yield documents of 500 rows from a file with one sentence per row, such as bookcorpus of the Hugging Face hub."""
    damage: list[Dropped] = []
    yield from sentence_blocks(file.name, _sentences(_parquet_rows(file), damage))
    yield from damage


def _sentences(rows: Iterator[tuple[dict[str, Any], list[str]] | Dropped], damage: list[Dropped]) -> Iterator[str]:
    """Yield the texts of rows; drops are appended to `damage`."""
    for row in rows:
        if isinstance(row, Dropped):
            damage.append(row)
        else:
            yield from row[1]


def _parquet_rows(file: Opened) -> Iterator[tuple[dict[str, Any], list[str]] | Dropped]:
    """Yield (values, paragraphs) for each row; if the file is damaged, yield a drop at the end.

    `values` has the row's values in the columns id, title and url, as far as these columns exist.
    """
    with _random_access(file) as stream:
        try:
            table = pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, pre_buffer=False)
            column = text_column(
                file.location, table.schema_arrow.names, _text_columns(table.schema_arrow, file.column), file.column
            )
            about = [
                name
                for name in table.schema_arrow.names
                if name in ABOUT and name != column and _is_about(table.schema_arrow.field(name).type)
            ]
            for batch in table.iter_batches(BATCH_ROWS, columns=[column, *about]):
                texts, *more = (_strings(batch.column(name)) for name in (column, *about))
                for text, *values in zip(texts, *more, strict=True):
                    yield dict(zip(about, values, strict=True)), [text] if isinstance(text, str) else text or []
        except DataError:
            raise
        except BROKEN as error:
            yield dropped(file.name, "damaged file", storage.first_line(error))


def column_rows(file: Opened, choose: Callable[[list[str]], Sequence[str]]) -> Iterator[tuple[Any, ...] | Dropped]:
    """Yield the values of some columns of each row: texts, lists of texts or None; at damage, yield a drop.

    `choose` gets the names of the columns with texts or lists of texts, and returns those to read.
    """
    with _random_access(file) as stream:
        try:
            table = pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, pre_buffer=False)
            names = choose(_text_columns(table.schema_arrow, None))
            for batch in table.iter_batches(BATCH_ROWS, columns=list(dict.fromkeys(names))):
                yield from zip(*(_strings(batch.column(name)) for name in names), strict=True)
        except DataError:
            raise
        except BROKEN as error:
            yield dropped(file.name, "damaged file", storage.first_line(error))


def _text_columns(schema: pa.Schema, wanted: str | None) -> list[str]:
    """Return the names of columns with text or lists of texts; bytes count as text only in the column `wanted`."""
    return [
        field.name
        for field in schema
        if _is_string(_value_type(field.type)) or (field.name == wanted and kinds.is_binary(_value_type(field.type)))
    ]


def _value_type(type: pa.DataType) -> pa.DataType:
    """Return the type of the values of a list, a dictionary or a list of dictionaries; lists of lists give a list."""
    if kinds.is_list(type) or kinds.is_large_list(type):
        type = type.value_type
    return type.value_type if kinds.is_dictionary(type) else type


def _is_string(type: pa.DataType) -> bool:
    return kinds.is_string(type) or kinds.is_large_string(type) or kinds.is_string_view(type)


def _is_about(type: pa.DataType) -> bool:
    """Whether a column of this type can be an id, url or title."""
    return kinds.is_integer(type) or (_is_string(_value_type(type)) and not kinds.is_nested(type))


def _strings(column: pa.Array) -> list[Any]:
    """Return the values of a column: texts, lists of texts, integers or None.

    Undecodable bytes become lone surrogates, as in all readers.
    """
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kinds.is_list(column.type) or kinds.is_large_list(column.type):
        return [
            None if part is None else [text for text in _strings(part) if text]
            for part in (scalar.values for scalar in column)
        ]
    if kinds.is_integer(column.type):
        return column.to_pylist()
    return [
        None if value is None else value.decode("utf-8", "surrogateescape")
        for value in column.cast(pa.large_binary()).to_pylist()
    ]
