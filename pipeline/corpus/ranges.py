"""Read a range of keys from a sorted Parquet file; row groups outside the range are not read."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.files import storage
from pipeline.files.retries import retrying

KEYS = 1 << 64
"""Number of 64-bit keys."""


def key_edges(number: int, count: int) -> tuple[int, int]:
    """Return (first key, key after the last key) of range `number`, if all 64-bit keys have `count` equal ranges."""
    return -(-number * KEYS // count), -(-(number + 1) * KEYS // count)


@retrying
def sorted_range(location: str, schema: pa.Schema, column: str, low: int, high: int) -> pa.Table:
    """Return the rows of a Parquet file whose `column` is at least `low` and below `high`.

    The file must be sorted by this column and have statistics of the column. The values are unsigned 64-bit numbers or
    byte strings. The first 8 bytes of a byte string are read as a big-endian number.
    """
    system, path = storage.filesystem(location)
    slices = [schema.empty_table()]
    with pq.ParquetFile(path, filesystem=system) as file:
        column_index = file.schema_arrow.names.index(column)
        for group in range(file.num_row_groups):
            if not file.metadata.row_group(group).num_rows:
                continue
            edges = file.metadata.row_group(group).column(column_index).statistics
            if _number(edges.max) >= low and _number(edges.min) < high:
                table = file.read_row_group(group).cast(schema)
                keys = numbers(table[column])
                first, last = (
                    int(np.searchsorted(keys, np.uint64(edge))) if edge < KEYS else len(keys) for edge in (low, high)
                )
                slices.append(table.slice(first, last - first))
    return pa.concat_tables(slices)


def _number(key: bytes | int) -> int:
    """Return a key as a number: the number itself, or the first 8 bytes of a byte string."""
    return int.from_bytes(key[:8], "big") if isinstance(key, bytes) else key


def numbers(keys: pa.ChunkedArray) -> np.ndarray:
    """Return keys as numbers, uint64 (rows,); byte strings become the number in their first 8 bytes."""
    return keys.to_numpy() if pa.types.is_integer(keys.type) else key_bytes(keys)[:, :8].copy().view(">u8").reshape(-1)


def key_bytes(keys: pa.ChunkedArray) -> np.ndarray:
    """Return keys of fixed width as bytes, uint8 (rows, width)."""
    array, width = keys.combine_chunks(), keys.type.byte_width
    buffer = np.frombuffer(array.buffers()[1] or b"", np.uint8).reshape(-1, width)
    return buffer[array.offset : array.offset + len(array)]
