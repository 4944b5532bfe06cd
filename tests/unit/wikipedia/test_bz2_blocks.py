"""Blocks of bz2 data from any byte on: what bz2 itself gives, whatever the pieces, chance magics or damage."""

import bz2
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.wikipedia import bz2_blocks
from pipeline.wikipedia.bz2_blocks import Bz2Blocks, Mark, find_marks

draw = random.Random(0)
TEXT = b"".join(
    bytes(pair) for pair in zip(draw.choices(b"abcde", k=225_000), draw.choices(b"fgh \n", k=225_000), strict=True)
)
DATA = bz2.compress(TEXT, 1)
SIZE = 99_981
"""Bytes per block of 100 kB in bzip2 when no byte repeats: 19 less (bzlib.c, nblockMAX)."""
ALL = 8 * len(DATA)


def blocks(data: bytes, start: int = 0, piece: int = 10_000) -> Bz2Blocks:
    return Bz2Blocks((data[at : at + piece] for at in range(start, len(data), piece)), start)


def starts() -> list[int]:
    """The bit of each block of DATA, found one bit after the other."""
    bits = f"{int.from_bytes(DATA):0{ALL}b}"
    magic = f"{0x314159265359:048b}"
    found = [bits.find(magic)]
    while (at := bits.find(magic, found[-1] + 1)) >= 0:
        found.append(at)
    return found


def test_marks_are_found_at_every_bit():
    found = find_marks(DATA)
    assert [mark.bit for mark in found if mark.block] == starts() and len(starts()) == 5
    assert [mark.block for mark in found] == [True] * 5 + [False]
    for shift in range(8):
        data = ((0x314159265359 << 88) | (0x177245385090 << 8)) << shift
        assert find_marks(b"\xff" + data.to_bytes(18)) == [
            Mark(bit=16 - shift, block=True),
            Mark(bit=96 - shift, block=False),
        ]


@pytest.mark.parametrize("piece", [1_000, 10_000, 10**6])
def test_blocks_are_the_text_in_order(piece: int):
    found = list(blocks(DATA, piece=piece).texts(ALL))
    assert found == [TEXT[at : at + SIZE] for at in range(0, len(TEXT), SIZE)]


@pytest.mark.parametrize("piece", [1, 2, 5, 9])
def test_a_mark_may_lie_in_several_pieces(piece: int):
    data = bz2.compress(b"One.") + bz2.compress(b"Two.") + bz2.compress(b"Three.")
    assert list(blocks(data, piece=piece).texts(8 * len(data))) == [b"One.", b"Two.", b"Three."]


@given(st.lists(st.integers(0, len(DATA)), max_size=4))
def test_the_blocks_of_ranges_are_those_of_the_whole(cuts: list[int]):
    edges = [0, *sorted(cuts), len(DATA)]
    found = [
        text for start, stop in zip(edges, edges[1:], strict=False) for text in blocks(DATA, start).texts(8 * stop)
    ]
    assert b"".join(text or b"?" for text in found) == TEXT


def test_streams_of_any_size_of_block_and_empty_ones_follow_one_another():
    parts = [TEXT[:250_000], b"", TEXT[250_000:260_000], b"", TEXT[260_000:]]
    data = b"".join(bz2.compress(part, level) for part, level in zip(parts, (2, 9, 1, 3, 4), strict=True))
    assert b"".join(text or b"?" for text in blocks(data).texts(8 * len(data))) == TEXT
    assert b"".join(text or b"?" for text in blocks(data).texts()) == TEXT


@given(st.lists(st.tuples(st.integers(100, ALL // 5 - 1000), st.booleans()), min_size=5, max_size=5))
def test_a_magic_in_a_block_by_chance_loses_nothing(places: list[tuple[int, bool]]):
    wrong = [
        Mark(bit=start + place, block=block)
        for start, (place, block) in zip(starts(), places, strict=True)
        if start + place < ALL - 100
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            bz2_blocks,
            "find_marks",
            lambda data, start: sorted([*find_marks(data, start), *(wrong if start == 0 else [])]),
        )
        found = blocks(DATA, piece=10**6)
        assert b"".join(text or b"?" for text in found.texts(ALL)) == TEXT and found.damaged == []


def test_a_damaged_block_is_lost_alone():
    at = starts()[2] // 8
    for place in (at + 20, at + 5_000, starts()[3] // 8 - 20):
        data = DATA[:place] + bytes([DATA[place] ^ 16]) + DATA[place + 1 :]
        found = blocks(data)
        assert list(found.texts(ALL)) == [
            TEXT[:SIZE],
            TEXT[SIZE : 2 * SIZE],
            None,
            TEXT[3 * SIZE : 4 * SIZE],
            TEXT[4 * SIZE :],
        ]
        assert found.damaged == [at] and not found.cut_off


def test_a_hole_is_read_over_within_a_range_and_ends_what_is_read_beyond_one():
    data = DATA + bytes(3_000_000) + DATA
    assert list(blocks(data).texts(8 * len(data))) == list(blocks(DATA).texts(ALL)) * 2
    read: list[int] = []
    pieces = (read.append(at) or data[at : at + 10_000] for at in range(0, len(data), 10_000))
    assert len(list(Bz2Blocks(pieces, 0).texts())) == 5 and max(read) < len(DATA) + bz2_blocks.LONGEST_BLOCK + 20_000


@pytest.mark.parametrize("data", [DATA, *(bz2.compress(TEXT[:size], 1) for size in range(101_000, 101_008))])
def test_data_that_is_cut_off_gives_what_bz2_gives(data: bytes):
    for missing in (
        *range(1, 9),
        11,
        12,
        5_000,
    ):  # without 9 or 10 bytes the block may end in the last one, of which some bits are not looked at
        found = blocks(data[:-missing])
        texts = list(found.texts(8 * len(data)))
        assert b"".join(text or b"" for text in texts) == bz2.BZ2Decompressor().decompress(data[:-missing])
        assert (found.cut_off, found.damaged) == (True, []), missing


def test_what_was_decompressed_is_not_held():
    data = bz2.compress(TEXT, 1) * 20
    found = blocks(data)
    most = 0
    for _ in found.texts(8 * len(data)):
        most = max(most, len(found.held))
    assert most < 3 * 50_000
