"""Where every row stands: (seed, epoch, position) -> window, steps -> rows, slots -> ranks. Pure arithmetic, no Ray.

epoch e        windows of the corpus, permuted by (seed, e); all epochs are one sequence of rows
step s         rows [offset(s), offset(s + 1)) of that sequence, cut into slots of equal size, more of them in later steps where the batch warms up
slot k         k counts from the stream's (re)start at a step boundary; it belongs to rank k mod W
block          some slots of one rank, one after the other: what is sent at once
phase          steps of one length, counted from its first; the second one's rows start at the window after the one that the first ended in
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from pipeline.config.phases import Phase
from pipeline.config.training import Batch
from pipeline.text.randomness import generator

MOST_SLOTS = 16  # per block, where that is enough tokens: the first slot waits for all of them, on every rank
SLOTS_PER_RANK = 8  # where that is more: all ranks of a large world then need no more blocks a second than two do
BLOCK_TOKENS = 2**20
LEAST_BLOCK_TOKENS = 2**16
"""At full length. Ray returns results under 100 KB inline, and the owner never frees those that other processes have read (ray 2.60)."""
ROUND_TOKENS = 2**26  # in one block of every rank, which are put in order as one table: 400 MB


@dataclass(frozen=True, kw_only=True, order=True)
class Cursor:
    """A row's place in the stream; in a checkpoint, that of the last row consumed."""

    epoch: int
    window: int
    """Place in the epoch's permuted order."""
    row: int
    """Place in the window."""
    rows_in_window: int

    @property
    def ends_window(self) -> bool:
        return self.row + 1 == self.rows_in_window

    def __str__(self) -> str:
        return f"epoch {self.epoch}, window {self.window}, row {self.row}"


@lru_cache(maxsize=4)
def permutation(seed: int, epoch: int, windows: int) -> np.ndarray:
    """Corpus windows in the order of this epoch: a permutation of range(windows), int64."""
    return generator(seed, epoch, 0, "order").permutation(windows)


def can_follow(previous: Cursor | None, following: Cursor) -> bool:
    """Whether `following` can be the next row after `previous` (None: the stream's start); windows without rows are passed over."""
    if previous is None:
        return following.epoch == 0 and following.row == 0
    if not previous.ends_window:
        return following == replace(previous, row=previous.row + 1)
    return following.row == 0 and (following.epoch, following.window) > (previous.epoch, previous.window)


def end_of_window(cursor: Cursor) -> Cursor:
    """The cursor with the rest of its window passed over, as a phase does that makes other examples of the windows after it."""
    return replace(cursor, row=cursor.rows_in_window - 1)


def cursor_for_phase(cursor: Cursor | None, phase: Phase, step: int) -> Cursor | None:
    """The row after which a phase goes on at a step of the run, `cursor` being the last row consumed."""
    return end_of_window(cursor) if cursor is not None and step == phase.first else cursor


def slots_at(step: int, batch: Batch) -> int:
    """Slots of a step: in the warm-up they grow evenly, rounded down."""
    if step >= batch.warmup_steps:
        return batch.slots_per_step
    return batch.fewest_slots + (batch.slots_per_step - batch.fewest_slots) * step // batch.warmup_steps


@lru_cache(maxsize=4)
def slots_of_warmup(batch: Batch) -> np.ndarray:
    """Slots before each step of the warm-up and before the first step after it, int64."""
    return np.cumsum([0] + [slots_at(step, batch) for step in range(batch.warmup_steps)])


def slots_before(step: int, batch: Batch) -> int:
    """Slots of all steps before this one."""
    warmed = min(step, batch.warmup_steps)
    return int(slots_of_warmup(batch)[warmed]) + (step - warmed) * batch.slots_per_step


def offset(step: int, batch: Batch) -> int:
    """Rows of the global sequence that come before a step."""
    return slots_before(step, batch) * batch.rows_per_slot


def slots_of_rank(step: int, start: int, batch: Batch, rank: int, world: int) -> list[int]:
    """Slots of a step, as places from 0 in it, that are dealt to a rank of a stream started at step `start`."""
    first = slots_before(step, batch) - slots_before(start, batch)
    return [place for place in range(slots_at(step, batch)) if (first + place) % world == rank]


def slots_of_block(batch: Batch, maximum_length: int, world: int) -> int:
    """Slots of one rank that come to it in one block, the same for all ranks: what Ray Data does for a block costs more than making its rows."""
    of_slot = batch.rows_per_slot * maximum_length
    wanted = max(MOST_SLOTS, SLOTS_PER_RANK * world, -(-LEAST_BLOCK_TOKENS // of_slot))
    return max(1, min(wanted, BLOCK_TOKENS // of_slot, ROUND_TOKENS // (of_slot * world)))


def rows_of_round(batch: Batch, maximum_length: int, world: int) -> int:
    """Rows of one block of every rank."""
    return world * slots_of_block(batch, maximum_length, world) * batch.rows_per_slot


def slots_by_rank(slots: int, world: int) -> list[int]:
    """The order in which `slots` slots, a multiple of `world` from the stream's start on, lie in blocks: those of rank 0, those of rank 1, and so on."""
    return [place for rank in range(world) for place in range(rank, slots, world)]


@dataclass(frozen=True, kw_only=True)
class WindowRange:
    """A run of windows of the endless sequence of epochs, as one input block of the stream."""

    first: int
    """epoch * windows + place in the epoch's order."""
    count: int
    skip: int = 0
    """Rows of the first window that are already consumed."""


def row_after(cursor: Cursor, windows: int) -> tuple[int, int]:
    """The window of the row after a cursor, counted through all epochs, and the rows before that one in it."""
    number = cursor.epoch * windows + cursor.window
    return (number + 1, 0) if cursor.ends_window else (number, cursor.row + 1)


def window_ranges(cursor: Cursor | None, windows: int, needed: int, most: int) -> Iterator[WindowRange]:
    """At most `most` ranges of equal size that cover `needed` windows or a few more, from the cursor's window on.

    No range is longer than it must be: a task that waits for its output to be taken holds a CPU that those who take it need.
    """
    first, skip = (0, 0) if cursor is None else row_after(cursor, windows)
    size = -(-needed // most)
    for start in range(first, first + needed, size):
        yield WindowRange(first=start, count=size, skip=skip if start == first else 0)


def check_chain(cursor: Cursor | None, slots: Sequence[tuple[Cursor, Cursor]]) -> str | None:
    """What is wrong with the order of a step's slots, given as (first row, last row) each; None when they are one sequence.

    `cursor` is the last row of the step before.
    """
    for place, (first, last) in enumerate(slots):
        if not can_follow(cursor, first):
            return f"slot {place} starts at {first}, after {cursor or 'the start of the stream'}"
        cursor = last
    return None
