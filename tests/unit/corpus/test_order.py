import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.training import Batch
from pipeline.corpus.order import Cursor, check_chain, follows, offset, permutation, slots_of_rank, window_ranges


ORDER = [6, 7, 5, 4, 0, 3, 1, 2]


def at(epoch: int, window: int, row: int, rows: int = 10) -> Cursor:
    return Cursor(epoch=epoch, window=window, row=row, rows_in_window=rows)


@given(seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 1000), windows=st.integers(1, 200))
def test_an_epoch_is_a_permutation_of_the_windows(seed: int, epoch: int, windows: int) -> None:
    assert sorted(permutation(seed, epoch, windows)) == list(range(windows))


def test_the_order_is_this_one_for_ever() -> None:
    # A literal: a run started by an older version must go on in the same order.
    assert permutation(0, 0, 8).tolist() == ORDER
    assert permutation(0, 1, 8).tolist() != ORDER
    assert permutation(1, 0, 8).tolist() != ORDER


def test_what_may_follow_a_row() -> None:
    assert follows(None, at(0, 0, 0))
    assert not follows(None, at(0, 0, 1))
    assert not follows(None, at(1, 0, 0))
    assert follows(at(0, 3, 4), at(0, 3, 5))
    assert not follows(at(0, 3, 4), at(0, 3, 6))
    assert not follows(at(0, 3, 4), at(0, 4, 0))
    assert follows(at(0, 3, 9), at(0, 4, 0))
    assert follows(at(0, 3, 9), at(1, 0, 0))
    assert follows(at(0, 3, 9), at(0, 5, 0))  # window 4 had no rows
    assert not follows(at(0, 3, 9), at(0, 3, 0))
    assert not follows(at(0, 3, 9), at(0, 4, 1))


def test_a_chain_of_slots_is_checked_to_the_row() -> None:
    slots = [(at(0, 0, 0), at(0, 0, 3)), (at(0, 0, 4), at(0, 0, 7)), (at(0, 0, 8), at(0, 1, 1))]
    assert check_chain(None, slots) is None
    swapped = [slots[0], slots[2], slots[1]]
    assert check_chain(None, swapped) == "slot 1 starts at epoch 0, window 0, row 8, after epoch 0, window 0, row 3"
    assert check_chain(at(0, 0, 1), slots) == "slot 0 starts at epoch 0, window 0, row 0, after epoch 0, window 0, row 1"


@given(slots=st.integers(1, 32), world=st.integers(1, 32), start=st.integers(0, 5), step=st.integers(0, 20))
def test_every_slot_of_a_step_belongs_to_one_rank(slots: int, world: int, start: int, step: int) -> None:
    world, step = min(world, slots), start + step
    dealt = [slots_of_rank(step, start, slots, rank, world) for rank in range(world)]
    assert sorted(place for places in dealt for place in places) == list(range(slots))
    assert all(dealt)


@given(slots=st.integers(1, 12), world=st.integers(1, 12), steps=st.integers(1, 6))
def test_ranks_take_slots_as_round_robin_deals_them(slots: int, world: int, steps: int) -> None:
    world = min(world, slots)
    dealt = [[k for k in range(slots * steps) if k % world == rank] for rank in range(world)]
    for step in range(steps):
        for rank in range(world):
            for place in slots_of_rank(step, 0, slots, rank, world):
                assert dealt[rank].pop(0) == step * slots + place


def test_offsets_count_rows() -> None:
    assert [offset(step, Batch(rows_per_step=64, rows_per_slot=16)) for step in range(3)] == [0, 64, 128]


@given(
    windows=st.integers(1, 30), needed=st.integers(1, 300), most=st.integers(1, 50), place=st.none() | st.tuples(st.integers(0, 3), st.integers(0, 29), st.integers(0, 9))
)
def test_ranges_cover_every_window_from_the_cursor_on(windows: int, needed: int, most: int, place: tuple[int, int, int] | None) -> None:
    cursor = at(place[0], place[1] % windows, place[2]) if place else None
    ranges = list(window_ranges(cursor, windows, needed, most))
    first = cursor.epoch * windows + cursor.window if cursor else 0
    covered = np.concatenate([np.arange(r.first, r.first + r.count) for r in ranges])
    assert len(ranges) <= most and len(covered) >= needed
    assert covered.tolist() == list(range(first, first + len(covered)))
    assert len(covered) < needed + max(r.count for r in ranges)
    assert [r.skip for r in ranges] == [cursor.row + 1 if cursor else 0] + [0] * (len(ranges) - 1)

