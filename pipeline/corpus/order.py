"""Position of every row: (seed, epoch, position) -> window, steps -> rows, slots -> ranks. Pure arithmetic, no Ray.

epoch e        windows of the corpus, permuted by (seed, e); all epochs are one sequence of rows
step s         rows [offset(s), offset(s + 1)) of that sequence, cut into slots of equal size; more of them in later
               steps if the batch warms up
slot k         k counts from the stream's (re)start at a step boundary; it belongs to rank k mod W
block          consecutive slots of one rank, sent together
phase          steps of one length, counted from its first; the second one's rows start at the window after the one in
               which the first ended
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from pipeline.config.phases import Phase
from pipeline.config.training import Batch
from pipeline.text.randomness import generator

MOST_SLOTS = 16  # per block for up to two ranks; a rank's first slot waits for its whole block
SLOTS_PER_RANK = 8  # times the ranks, per block, for more: so blocks per second do not grow with the ranks
BLOCK_TOKENS = 2**20
LEAST_BLOCK_TOKENS = 2**16
"""At full length.

Ray returns results under 100 KB inline, and the owner never frees those read by others (ray 2.60).
"""
ROUND_TOKENS = 2**26  # in one block of every rank; these are ordered as one table of 400 MB


@dataclass(frozen=True, kw_only=True, order=True)
class Cursor:
    """A row's position in the stream; a checkpoint has that of the last row consumed."""

    epoch: int
    window: int
    """Position in the epoch's permuted order."""
    row: int
    """Index in the window."""
    rows_in_window: int

    @property
    def ends_window(self) -> bool:
        return self.row + 1 == self.rows_in_window

    def __str__(self) -> str:
        return f"epoch {self.epoch}, window {self.window}, row {self.row}"


@lru_cache(maxsize=4)
def permutation(seed: int, epoch: int, windows: int) -> np.ndarray:
    """Return the order of corpus windows in this epoch: a permutation of range(windows), int64."""
    return generator(seed, epoch, 0, "order").permutation(windows)


def can_follow(previous: Cursor | None, following: Cursor) -> bool:
    """Whether `following` can be the row after `previous` (None: the start); windows without rows are skipped."""
    if previous is None:
        return following.epoch == 0 and following.row == 0
    if not previous.ends_window:
        return following == replace(previous, row=previous.row + 1)
    return following.row == 0 and (following.epoch, following.window) > (previous.epoch, previous.window)


def _end_of_window(cursor: Cursor) -> Cursor:
    """Return the cursor at the end of its window, for a phase that makes other examples from the next window on."""
    return replace(cursor, row=cursor.rows_in_window - 1)


def cursor_for_phase(cursor: Cursor | None, phase: Phase, step: int) -> Cursor | None:
    """Return the row after which a phase continues at a step of the run; `cursor` is the last row consumed."""
    return _end_of_window(cursor) if cursor is not None and step == phase.first else cursor


def slots_at(step: int, batch: Batch) -> int:
    """Return the slots of a step; in the warm-up they grow linearly, rounded down."""
    if step >= batch.warmup_steps:
        return batch.slots_per_step
    return batch.fewest_slots + (batch.slots_per_step - batch.fewest_slots) * step // batch.warmup_steps


@lru_cache(maxsize=4)
def _slots_of_warmup(batch: Batch) -> np.ndarray:
    """Return the slots before each step of the warm-up and before the first step after it, int64."""
    return np.cumsum([0] + [slots_at(step, batch) for step in range(batch.warmup_steps)])


def _slots_before(step: int, batch: Batch) -> int:
    """Return the slots of all steps before this one."""
    warmed = min(step, batch.warmup_steps)
    return int(_slots_of_warmup(batch)[warmed]) + (step - warmed) * batch.slots_per_step


def offset(step: int, batch: Batch) -> int:
    """Return the rows of the global sequence before a step."""
    return _slots_before(step, batch) * batch.rows_per_slot


def slots_of_rank(step: int, start: int, batch: Batch, rank: int, world: int) -> list[int]:
    """Return the slots of a step (indices in it) dealt to a rank, for a stream started at step `start`."""
    first = _slots_before(step, batch) - _slots_before(start, batch)
    return [slot for slot in range(slots_at(step, batch)) if (first + slot) % world == rank]


def slots_of_block(batch: Batch, maximum_length: int, world: int) -> int:
    """Return the slots per block, the same for all ranks: Ray Data's work per block costs more than making its rows."""
    of_slot = batch.rows_per_slot * maximum_length
    wanted = max(MOST_SLOTS, SLOTS_PER_RANK * world, -(-LEAST_BLOCK_TOKENS // of_slot))
    return max(1, min(wanted, BLOCK_TOKENS // of_slot, ROUND_TOKENS // (of_slot * world)))


def rows_of_round(batch: Batch, maximum_length: int, world: int) -> int:
    """Return the rows in one block of every rank."""
    return world * slots_of_block(batch, maximum_length, world) * batch.rows_per_slot


def slots_by_rank(slots: int, world: int) -> list[int]:
    """Return the order of `slots` slots in blocks: those of rank 0, those of rank 1, and so on.

    `slots` is a multiple of `world`, counted from the stream's start.
    """
    return [slot for rank in range(world) for slot in range(rank, slots, world)]


@dataclass(frozen=True, kw_only=True)
class WindowRange:
    """Consecutive windows of the endless sequence of epochs, as one input block of the stream."""

    first: int
    """epoch * windows + position in the epoch's order."""
    count: int
    skip: int = 0
    """Rows of the first window already consumed."""


def row_after(cursor: Cursor, windows: int) -> tuple[int, int]:
    """Return the window of the row after a cursor, counted through all epochs, and that row's index in it."""
    number = cursor.epoch * windows + cursor.window
    return (number + 1, 0) if cursor.ends_window else (number, cursor.row + 1)


def window_ranges(cursor: Cursor | None, windows: int, needed: int, most: int) -> Iterator[WindowRange]:
    """Yield at most `most` equal ranges that cover `needed` windows or a few more, from the cursor's window on.

    Ranges are as short as possible: a task that waits for its output to be consumed holds a CPU that its consumers
    need.
    """
    first, skip = (0, 0) if cursor is None else row_after(cursor, windows)
    size = -(-needed // most)
    for start in range(first, first + needed, size):
        yield WindowRange(first=start, count=size, skip=skip if start == first else 0)


def check_chain(cursor: Cursor | None, slots: Sequence[tuple[Cursor, Cursor]]) -> str | None:
    """Return what is wrong with the order of a step's slots, each (first row, last row), or None if nothing.

    `cursor` is the last row of the step before.
    """
    for number, (first, last) in enumerate(slots):
        if not can_follow(cursor, first):
            return f"slot {number} starts at {first}, after {cursor or 'the start of the stream'}"
        cursor = last
    return None
