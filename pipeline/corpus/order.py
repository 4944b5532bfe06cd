"""Compute the order of all rows: the windows of each epoch, the rows of each step, the slots of each rank.

This module is pure arithmetic, without Ray.

epoch e        windows of the corpus, permuted by (seed, e); all epochs together are one sequence of rows
step s         rows [offset(s), offset(s + 1)) of that sequence, divided into slots of equal size; while the batch warms
               up, later steps have more slots
slot k         slots are counted from the step at which the stream was started or resumed; with W ranks, slot k belongs
               to rank k mod W
block          consecutive slots of one rank, sent together
round          one block of every rank
phase          consecutive steps with one sequence length and share of masks; inside a phase, steps are counted from
               the phase's first step; each further phase starts at the window after the previous phase's last window
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from pipeline.config.phases import Phase
from pipeline.config.training import Batch
from pipeline.text.randomness import generator

MOST_SLOTS = 16
"""Slots per block for one or two ranks. More slots would delay a rank's first slot, which waits for its whole block."""
SLOTS_PER_RANK = 8
"""With more than two ranks, a block has this many slots times the number of ranks, within the limits below.

Therefore the number of blocks per second does not grow with the number of ranks.
"""
BLOCK_TOKENS = 2**20
"""Maximum tokens per block."""
LEAST_BLOCK_TOKENS = 2**16
"""Minimum tokens per block, if all rows have the maximum length.

Ray returns a result below 100 KB inline, and the result's owner never frees it if other processes read it (ray 2.60).
"""
ROUND_TOKENS = 2**26
"""Maximum tokens per round. A round is sorted as one table, which has 400 MB at this size."""


@dataclass(frozen=True, kw_only=True, order=True)
class Cursor:
    """Position of a row in the stream; a checkpoint has the cursor of the last row consumed."""

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
    """Return the order of corpus windows in an epoch: a permutation of range(windows), int64 (windows,)."""
    return generator(seed, epoch, 0, "order").permutation(windows)


def can_follow(previous: Cursor | None, following: Cursor) -> bool:
    """Whether the row at `following` can come next after the row at `previous`.

    If `previous` is None, the row at `following` must be the first row of the stream. Windows without rows may lie
    before `following`.
    """
    if previous is None:
        return following.epoch == 0 and following.row == 0
    if not previous.ends_window:
        return following == replace(previous, row=previous.row + 1)
    return following.row == 0 and (following.epoch, following.window) > (previous.epoch, previous.window)


def _end_of_window(cursor: Cursor) -> Cursor:
    """Return the cursor of the last row in the same window.

    A new phase makes other examples, so it starts at the next window.
    """
    return replace(cursor, row=cursor.rows_in_window - 1)


def cursor_for_phase(cursor: Cursor | None, phase: Phase, step: int) -> Cursor | None:
    """Return the cursor after which the stream of a phase starts or resumes, at step `step` of the run.

    `cursor` is the cursor of the last row consumed. If `cursor` is None, no row was consumed, and the result is None.
    """
    return _end_of_window(cursor) if cursor is not None and step == phase.first else cursor


def slots_at(step: int, batch: Batch) -> int:
    """Return the number of slots in a step. During the warm-up, the number grows linearly and is rounded down."""
    if step >= batch.warmup_steps:
        return batch.slots_per_step
    return batch.fewest_slots + (batch.slots_per_step - batch.fewest_slots) * step // batch.warmup_steps


@lru_cache(maxsize=4)
def _slots_of_warmup(batch: Batch) -> np.ndarray:
    """Return the number of slots before each warm-up step, and before the first step after the warm-up.

    The result is int64 (warmup_steps + 1,).
    """
    return np.cumsum([0] + [slots_at(step, batch) for step in range(batch.warmup_steps)])


def _slots_before(step: int, batch: Batch) -> int:
    """Return the number of slots in all steps before `step`."""
    warmed = min(step, batch.warmup_steps)
    return int(_slots_of_warmup(batch)[warmed]) + (step - warmed) * batch.slots_per_step


def offset(step: int, batch: Batch) -> int:
    """Return the number of rows in the global sequence before a step."""
    return _slots_before(step, batch) * batch.slot_rows


def slots_of_rank(step: int, start: int, batch: Batch, rank: int, world: int) -> list[int]:
    """Return the slots of a step that belong to a rank, as indices within the step.

    `start` is the step at which the stream was started or resumed.
    """
    first = _slots_before(step, batch) - _slots_before(start, batch)
    return [slot for slot in range(slots_at(step, batch)) if (first + slot) % world == rank]


def slots_of_block(batch: Batch, maximum_length: int, world: int) -> int:
    """Return the number of slots per block, the same for all ranks.

    A block has many slots, because for a small block, Ray Data's own work costs more than making the rows.
    """
    slot_tokens = batch.slot_rows * maximum_length
    wanted = max(MOST_SLOTS, SLOTS_PER_RANK * world, -(-LEAST_BLOCK_TOKENS // slot_tokens))
    return max(1, min(wanted, BLOCK_TOKENS // slot_tokens, ROUND_TOKENS // (slot_tokens * world)))


def rows_of_round(batch: Batch, maximum_length: int, world: int) -> int:
    """Return the number of rows in a round: one block of every rank."""
    return world * slots_of_block(batch, maximum_length, world) * batch.slot_rows


def slots_by_rank(slots: int, world: int) -> list[int]:
    """Return the indices of a round's slots in the order of blocks: the slots of rank 0, then of rank 1, and so on.

    `slots`, the number of slots in a round, must be a multiple of `world`.
    """
    return [slot for rank in range(world) for slot in range(rank, slots, world)]


@dataclass(frozen=True, kw_only=True)
class WindowRange:
    """Consecutive windows in the endless sequence of epochs; one input block of the stream."""

    first: int
    """First window, counted through all epochs: epoch * (windows per epoch) + position in the epoch's order."""
    count: int
    skip: int = 0
    """Number of rows at the start of the first window that were already consumed."""


def row_after(cursor: Cursor, windows: int) -> tuple[int, int]:
    """Return (window, row) of the row after a cursor: its window, counted through all epochs, and its index there.

    `windows` is the number of windows per epoch.
    """
    number = cursor.epoch * windows + cursor.window
    return (number + 1, 0) if cursor.ends_window else (number, cursor.row + 1)


def window_ranges(cursor: Cursor | None, windows: int, needed: int, most: int) -> Iterator[WindowRange]:
    """Yield at most `most` ranges of equal length that cover the next `needed` windows after the cursor, or a few more.

    `windows` is the number of windows per epoch. If `cursor` is None, the ranges start at the first window. Each range
    is one task. Ranges are as short as possible, because a task that waits for its output to be consumed holds a CPU,
    and the consumers need that CPU.
    """
    first, skip = (0, 0) if cursor is None else row_after(cursor, windows)
    size = -(-needed // most)
    for start in range(first, first + needed, size):
        yield WindowRange(first=start, count=size, skip=skip if start == first else 0)


def check_chain(cursor: Cursor | None, slots: Sequence[tuple[Cursor, Cursor]]) -> str | None:
    """Return a description of an error in the order of a step's slots, or None if each slot follows the previous slot.

    A slot is (cursor of its first row, cursor of its last row). `cursor` is the cursor of the last row of the previous
    step, or None at the start of the stream.
    """
    for number, (first, last) in enumerate(slots):
        if not can_follow(cursor, first):
            return f"slot {number} starts at {first}, which does not follow {cursor or 'the start of the stream'}"
        cursor = last
    return None
