"""Schemas and Arrow tables of parts: rows sorted by text hash, and the sketches of their texts sorted by hash."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.text.schema import DOCUMENT

KEY_BYTES = 16
PART = pa.schema(
    [
        pa.field("key", pa.binary(KEY_BYTES), nullable=False),  # hash of the text
        # decides which parents are held out, and which of two equal texts is kept
        pa.field("parent_hash", pa.uint64(), nullable=False),
        pa.field("hashes", pa.int32(), nullable=False),  # number of hashes in the sketch
        pa.field("common", pa.int32(), nullable=False),  # how many of these are below sketches.COMMON
        *DOCUMENT,
    ]
)
SKETCH = pa.schema(
    [
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("size", pa.uint8(), nullable=False),  # size class of the text, in powers of two (sketches.size_class)
        pa.field("casing", pa.uint8(), nullable=False),  # casing class of the text (sketches.casing)
        pa.field("parent_hash", pa.uint64(), nullable=False),
        pa.field("place", pa.uint64(), nullable=False),  # the first 8 bytes of the text's key
    ]
)
PART_CHARACTERS = 48_000_000
"""Approximate number of characters per part."""
TABLE_CHARACTERS = 4_000_000
"""Characters held as Python strings before they are converted to Arrow."""
GROUP_BYTES = 250_000
"""Size of a part's row groups. It is small, so that the task of one shard reads few rows of other shards."""


@dataclass(frozen=True, kw_only=True)
class SketchedRow:
    """Row of schema PART, with the sketch of its text, uint64 (hashes,), and the text's size class and casing."""

    row: dict[str, Any]
    sketch: np.ndarray
    size: int
    casing: int


def part_tables(rows: Iterable[SketchedRow]) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield (rows, sketches): two sorted tables, of rows with about 48 million characters and of their sketches."""
    tables: list[tuple[pa.Table, pa.Table]] = []
    held: list[SketchedRow] = []
    characters = gathered = 0
    for item in rows:
        held.append(item)
        characters += len(item.row["text"])
        if characters >= TABLE_CHARACTERS:
            tables.append(arrow_tables(held))
            gathered += characters
            held, characters = [], 0
        if gathered >= PART_CHARACTERS:
            yield _merge_tables(tables)
            tables, gathered = [], 0
    if tables or held:
        yield _merge_tables([*tables, arrow_tables(held)])


def arrow_tables(held: list[SketchedRow]) -> tuple[pa.Table, pa.Table]:
    """Return the rows as a table of schema PART, and the hashes of their sketches as a table of schema SKETCH."""
    lengths = [len(item.sketch) for item in held]
    sizes, casings = (np.array([getattr(item, name) for item in held], np.uint8) for name in ("size", "casing"))
    parents = np.array([item.row["parent_hash"] for item in held], np.uint64)
    text_numbers = np.array([leading_number(item.row["key"]) for item in held], np.uint64)
    hashes = np.concatenate([np.zeros(0, np.uint64), *(item.sketch for item in held)])
    repeated = (np.repeat(values, lengths) for values in (sizes, casings, parents, text_numbers))
    columns = [pa.array(column) for column in (hashes, *repeated)]
    return pa.Table.from_pylist([item.row for item in held], schema=PART), pa.Table.from_arrays(columns, schema=SKETCH)


def leading_number(key: bytes) -> int:
    """Return the first 8 bytes of a key as a big-endian number."""
    return int.from_bytes(key[:8], "big")


def _merge_tables(tables: list[tuple[pa.Table, pa.Table]]) -> tuple[pa.Table, pa.Table]:
    """Merge several pairs of tables into one sorted part and its sorted sketches."""
    return sort_part(pa.concat_tables([rows for rows, _ in tables])), pa.concat_tables(
        [sketches for _, sketches in tables]
    ).sort_by("hash")


def sort_part(table: pa.Table) -> pa.Table:
    """Sort rows by text hash, then by parent hash (greatest first), then by id."""
    return table.sort_by([("key", "ascending"), ("parent_hash", "descending"), ("id", "ascending")])


def parquet(table: pa.Table, column: str) -> pa.Buffer:
    """Return a table as a Parquet file, with small row groups and statistics of `column`.

    The table must be sorted by `column`.
    """
    rows = max(1, table.num_rows * GROUP_BYTES // max(1, table.nbytes))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows, compression="zstd", compression_level=1, write_statistics=[column])
    return sink.getvalue()
