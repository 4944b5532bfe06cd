"""Read Parquet files as Arrow tables."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.files.opening import compression_by_name
from pipeline.files.retries import with_retries
from pipeline.tables.content import EmptyTable, content_of

BATCH_ROWS = 8_192


def column_names(location: str) -> list[str]:
    """Return the names of a file's columns. Raises DataError if it cannot be read as Parquet."""
    with _opened(location) as file:
        return file.schema_arrow.names


def count_rows(location: str) -> int:
    """Return the number of rows of a file. Raises DataError if it cannot be read as Parquet."""
    with _opened(location) as file:
        return int(file.metadata.num_rows)


def tables_in(location: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the rows of a file in order, in small tables of some columns; None: all columns.

    Raises DataError if it cannot be read as Parquet.
    """
    with _opened(location) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=None if columns is None else list(dict.fromkeys(columns))):
            yield pa.Table.from_batches([batch])


@contextmanager
def _opened(location: str) -> Generator[pq.ParquetFile]:
    """Open a file; a compressed one is read as a whole. Raises DataError if it cannot be read as Parquet."""
    try:
        if compression_by_name(location):
            source = pa.BufferReader(content_of(location))
        else:
            system, path = storage.filesystem(location)
            source = with_retries(lambda: system.open_input_file(path))
        if not source.size():
            raise EmptyTable(location)
        with pq.ParquetFile(source) as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{location} does not exist") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{location} cannot be read as Parquet: {storage.first_line(error)}") from error
