import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.data import Sampling
from pipeline.config.phases import TwoPhases, split
from pipeline.config.training import Batch
from pipeline.corpus.order import (
    LEAST_BLOCK_TOKENS,
    Cursor,
    WindowRange,
    can_follow,
    check_chain,
    cursor_for_phase,
    offset,
    permutation,
    row_after,
    rows_of_round,
    slots_at,
    slots_by_rank,
    slots_of_block,
    slots_of_rank,
    window_ranges,
)
from pipeline.corpus.stream import TOKEN_BYTES

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


def batch_of(slots: int) -> Batch:
    return Batch(rows_per_step=4 * slots, rows_per_slot=4)


@given(slots=st.integers(1, 9), steps=st.integers(1, 12), world=st.integers(1, 9), of_block=st.integers(1, 5))
def test_blocks_dealt_in_turn_bring_each_rank_the_slots_of_its_steps(
    slots: int, steps: int, world: int, of_block: int
) -> None:
    batch, of_round = batch_of(slots), world * of_block
    rounds = -(-slots * steps // of_round)
    stream = [
        first + place for first in range(0, rounds * of_round, of_round) for place in slots_by_rank(of_round, world)
    ]
    blocks = [stream[first : first + of_block] for first in range(0, len(stream), of_block)]
    assert sorted(stream) == list(range(rounds * of_round))
    for rank in range(world):
        received = [slot for block in blocks[rank::world] for slot in block]
        wanted = [step * slots + place for step in range(steps) for place in slots_of_rank(step, 0, batch, rank, world)]
        assert received[: len(wanted)] == wanted


def test_a_block_holds_some_steps_but_not_too_many_tokens() -> None:
    def of_block(rows_per_slot: int, maximum_length: int, world: int) -> int:
        return slots_of_block(Batch(rows_per_step=1024, rows_per_slot=rows_per_slot), maximum_length, world)

    assert of_block(32, 128, 1) == of_block(32, 128, 2) == of_block(8, 512, 2) == 16 and of_block(32, 128, 3) == 24
    assert [of_block(rows, 128, 8) for rows in (32, 256, 1024)] == [64, 32, 8]
    assert [of_block(32, 128, world) for world in (8, 64, 128, 512, 16384)] == [64, 256, 128, 32, 1]
    assert rows_of_round(Batch(rows_per_step=1024, rows_per_slot=32), 128, 3) == 3 * 24 * 32  # a block of each rank


def test_a_block_of_small_slots_is_too_large_for_an_inline_result() -> None:
    for rows_per_slot, maximum_length in ((1, 16), (16, 64), (4, 32), (2, 100)):
        of_block = slots_of_block(Batch(rows_per_step=1024, rows_per_slot=rows_per_slot), maximum_length, 2)
        tokens = of_block * rows_per_slot * maximum_length
        assert LEAST_BLOCK_TOKENS <= tokens < LEAST_BLOCK_TOKENS + rows_per_slot * maximum_length
    assert (
        LEAST_BLOCK_TOKENS * TOKEN_BYTES >= 4 * 100 * 1024
    )  # four times the size of an inline result: rows may be a quarter full


def test_what_may_follow_a_row() -> None:
    assert can_follow(None, at(0, 0, 0))
    assert not can_follow(None, at(0, 0, 1))
    assert not can_follow(None, at(1, 0, 0))
    assert can_follow(at(0, 3, 4), at(0, 3, 5))
    assert not can_follow(at(0, 3, 4), at(0, 3, 6))
    assert not can_follow(at(0, 3, 4), at(0, 4, 0))
    assert can_follow(at(0, 3, 9), at(0, 4, 0))
    assert can_follow(at(0, 3, 9), at(1, 0, 0))
    assert can_follow(at(0, 3, 9), at(0, 5, 0))  # window 4 had no rows
    assert not can_follow(at(0, 3, 9), at(0, 3, 0))
    assert not can_follow(at(0, 3, 9), at(0, 4, 1))


def test_a_chain_of_slots_is_checked_to_the_row() -> None:
    slots = [(at(0, 0, 0), at(0, 0, 3)), (at(0, 0, 4), at(0, 0, 7)), (at(0, 0, 8), at(0, 1, 1))]
    assert check_chain(None, slots) is None
    swapped = [slots[0], slots[2], slots[1]]
    assert (
        check_chain(None, swapped)
        == "slot 1 starts at epoch 0, window 0, row 8, which does not follow epoch 0, window 0, row 3"
    )
    assert (
        check_chain(at(0, 0, 1), slots)
        == "slot 0 starts at epoch 0, window 0, row 0, which does not follow epoch 0, window 0, row 1"
    )


@given(slots=st.integers(1, 32), world=st.integers(1, 32), start=st.integers(0, 5), step=st.integers(0, 20))
def test_every_slot_of_a_step_belongs_to_one_rank(slots: int, world: int, start: int, step: int) -> None:
    world, step = min(world, slots), start + step
    dealt = [slots_of_rank(step, start, batch_of(slots), rank, world) for rank in range(world)]
    assert sorted(place for places in dealt for place in places) == list(range(slots))
    assert all(dealt)


@given(slots=st.integers(1, 12), world=st.integers(1, 12), steps=st.integers(1, 6))
def test_ranks_take_slots_as_round_robin_deals_them(slots: int, world: int, steps: int) -> None:
    world = min(world, slots)
    dealt = [[k for k in range(slots * steps) if k % world == rank] for rank in range(world)]
    for step in range(steps):
        for rank in range(world):
            for place in slots_of_rank(step, 0, batch_of(slots), rank, world):
                assert dealt[rank].pop(0) == step * slots + place


def test_a_batch_warms_up_by_hand() -> None:
    # 2 slots grow to 5 over 4 steps: 2 + 3 * 0/4, 2 + 3 * 1/4, 2 + 3 * 2/4, 2 + 3 * 3/4, rounded down, then 5.
    batch = Batch(rows_per_step=20, rows_per_slot=4, warmup_steps=4, warmup_rows=8)
    assert [slots_at(step, batch) for step in range(7)] == [2, 2, 3, 4, 5, 5, 5]
    assert [offset(step, batch) for step in range(7)] == [0, 8, 16, 28, 44, 64, 84]
    assert [slots_of_rank(step, 1, batch, 1, 2) for step in (1, 2, 3)] == [
        [1],
        [1],
        [0, 2],
    ]  # slots 0 1 | 2 3 4 | 5 6 7 8 of a stream from step 1 on


GROWING = st.builds(
    lambda first, more, steps: Batch(
        rows_per_step=4 * (first + more), rows_per_slot=4, warmup_steps=steps, warmup_rows=4 * first
    ),
    st.integers(1, 6),
    st.integers(0, 9),
    st.integers(1, 12),
)


@given(batch=GROWING)
def test_a_batch_grows_without_a_step_back_and_offsets_add_its_rows_up(batch: Batch) -> None:
    slots = [slots_at(step, batch) for step in range(20)]
    assert (
        slots[0] == batch.fewest_slots
        and slots == sorted(slots)
        and set(slots[batch.warmup_steps :]) == {batch.slots_per_step}
    )
    assert [offset(step, batch) for step in range(20)] == [4 * sum(slots[:step]) for step in range(20)]


@given(batch=GROWING, world=st.integers(1, 6), start=st.integers(0, 14))
def test_every_world_sees_the_same_steps_of_a_growing_batch(batch: Batch, world: int, start: int) -> None:
    """Round-robin dealing from step `start` on, also within the warm-up.

    Each rank gets a slot in every step, and together they are the step's slots.
    """
    world = min(world, batch.fewest_slots)
    first, last = offset(start, batch) // 4, offset(start + 6, batch) // 4
    dealt = [[slot for slot in range(first, last) if (slot - first) % world == rank] for rank in range(world)]
    for step in range(start, start + 6):
        places = [slots_of_rank(step, start, batch, rank, world) for rank in range(world)]
        assert all(places)
        seen = {place: dealt[rank].pop(0) for rank in range(world) for place in places[rank]}
        assert [seen[place] for place in sorted(seen)] == list(
            range(offset(step, batch) // 4, offset(step + 1, batch) // 4)
        )


def test_a_phase_begins_at_the_next_window() -> None:
    first, second = split(TwoPhases(share=0.25), 8, Sampling(), Batch())
    assert cursor_for_phase(at(2, 3, 4), first, 5) == at(2, 3, 4) and cursor_for_phase(at(2, 3, 4), second, 7) == at(
        2, 3, 4
    )
    assert cursor_for_phase(None, first, 0) is None
    left = cursor_for_phase(at(2, 3, 4), second, 6)
    assert left == at(2, 3, 9) and can_follow(left, at(2, 4, 0, rows=2)) and not can_follow(left, at(2, 3, 5))
    assert row_after(left, 20) == (2 * 20 + 4, 0) and row_after(at(2, 3, 4), 20) == (2 * 20 + 3, 5)
    assert next(window_ranges(left, 4, 1, 1)) == WindowRange(first=12, count=1)  # the first one of epoch 3


def test_offsets_count_rows() -> None:
    assert [offset(step, Batch(rows_per_step=64, rows_per_slot=16)) for step in range(3)] == [0, 64, 128]


@given(
    windows=st.integers(1, 30),
    needed=st.integers(1, 300),
    most=st.integers(1, 50),
    place=st.none() | st.tuples(st.integers(0, 3), st.integers(0, 29), st.integers(0, 9)),
)
def test_ranges_cover_every_window_from_the_cursor_on(
    windows: int, needed: int, most: int, place: tuple[int, int, int] | None
) -> None:
    cursor = at(place[0], place[1] % windows, place[2]) if place else None
    ranges = list(window_ranges(cursor, windows, needed, most))
    ends = cursor is not None and cursor.row == 9
    first = cursor.epoch * windows + cursor.window + ends if cursor else 0
    covered = np.concatenate([np.arange(r.first, r.first + r.count) for r in ranges])
    assert len(ranges) <= most and len(covered) >= needed
    assert covered.tolist() == list(range(first, first + len(covered)))
    assert len(covered) < needed + max(r.count for r in ranges)
    assert [r.skip for r in ranges] == [cursor.row + 1 if cursor and not ends else 0] + [0] * (len(ranges) - 1)
