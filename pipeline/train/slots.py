"""Slots of a step: rows of a training stream as batches, and a record of each slot.

Losses are divided by counts over all ranks, so every rank needs the counts of all slots. So all ranks exchange their
records before the first backward.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist

from pipeline.batch import AnyBatch, Batch, MaskedBatch, collate
from pipeline.corpus.order import Cursor

CURSOR = ("epoch", "window", "row", "rows_in_window")


@dataclass(frozen=True, kw_only=True)
class SlotRecord:
    """Counts and positions of a slot. Every rank gets all records before the step's first backward."""

    index: int
    """Index of the slot in the step, 0..S-1."""
    rows: int
    tokens: int
    squares: int
    """Sum of squared sequence lengths; the cost of attention is proportional to it."""
    masked: int
    counts: tuple[int, ...]
    """Count of each loss term, in the order of the objective's `terms`."""
    crc32: int
    """CRC-32 of ids and labels: the same in every run that reads the same rows."""
    first: Cursor
    """Position of the slot's first row."""
    last: Cursor
    """Position of the slot's last row."""

    def to_numbers(self) -> list[int]:
        """Return the record as integers, which ranks can exchange in a tensor."""
        cursors = [getattr(c, name) for c in (self.first, self.last) for name in CURSOR]
        return [self.index, self.rows, self.tokens, self.squares, self.masked, self.crc32, *cursors, *self.counts]

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> "SlotRecord":
        """Return the record that `to_numbers` turned into these integers."""
        index, rows, tokens, squares, masked, crc32, *others = map(int, numbers)
        first, last = (Cursor(**dict(zip(CURSOR, others[i : i + 4], strict=True))) for i in (0, 4))
        return cls(
            index=index,
            rows=rows,
            tokens=tokens,
            squares=squares,
            masked=masked,
            counts=tuple(others[2 * len(CURSOR) :]),
            crc32=crc32,
            first=first,
            last=last,
        )


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The rows of one slot as a batch, and its record."""

    batch: Batch
    record: SlotRecord


def make_slot(rows: pa.Table, index: int, counts: Callable[[AnyBatch], Mapping[str, int]]) -> Slot:
    """Return the slot with these rows (schema ROW) and this index in its step.

    `counts` returns the count of each loss term, in the objective's order.
    """
    batch: Batch = collate(rows)
    first, last = (_cursor(rows, number) for number in (0, rows.num_rows - 1))
    crc32 = zlib.crc32(np.ascontiguousarray(batch.ids_T.numpy()).data)
    if isinstance(batch, MaskedBatch):
        crc32 = zlib.crc32(np.ascontiguousarray(batch.masked_labels_M.numpy()).data, crc32)
    record = SlotRecord(
        index=index,
        rows=rows.num_rows,
        tokens=batch.tokens,
        squares=int(batch.offsets.diff().long().square().sum()),
        masked=batch.masked,
        counts=tuple(counts(batch).values()),
        crc32=crc32,
        first=first,
        last=last,
    )
    return Slot(batch=batch, record=record)


def _cursor(rows: pa.Table, number: int) -> Cursor:
    """Return the position of a row in the stream."""
    return Cursor(**{name: rows.column(name)[number].as_py() for name in CURSOR})


def exchange(records: Sequence[SlotRecord], slots_per_step: int, world: int) -> list[SlotRecord]:
    """Exchange records with all ranks; return the records of all slots of the step, in the order of their indices."""
    if world == 1:
        return sorted(records, key=lambda record: record.index)
    most = -(-slots_per_step // world)
    numbers = torch.tensor([record.to_numbers() for record in records], dtype=torch.int64)
    # all_gather needs equal shapes, so a rank with fewer slots than others fills up with rows of -1.
    mine = torch.full((most, numbers.shape[1]), -1, dtype=torch.int64)
    mine[: len(records)] = numbers
    gathered = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(gathered, mine)
    rows = torch.cat(gathered)
    return sorted((SlotRecord.from_numbers(r) for r in rows[rows[:, 0] >= 0].tolist()), key=lambda record: record.index)
