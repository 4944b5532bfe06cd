"""Parts of long texts, by hand and by their laws."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.tasks.parts import most_context, parts

CUTS = st.tuples(st.integers(0, 60), st.integers(1, 12), st.integers(0, 11)).filter(lambda cut: cut[2] < cut[1])


def test_parts_by_hand() -> None:
    assert parts(10, 5, 2) == [(0, 5), (3, 8), (6, 10)]
    assert parts(11, 5, 2) == [(0, 5), (3, 8), (6, 11)]  # no part of tokens that all stand in the one before
    assert parts(12, 5, 2) == [(0, 5), (3, 8), (6, 11), (9, 12)]
    assert parts(5, 5, 2) == [(0, 5)] and parts(2, 5, 2) == [(0, 2)] and parts(0, 5, 2) == [(0, 0)]


def test_the_most_context_by_hand() -> None:
    """Token 3 has no token on its right in (0, 4) and one on its left in (2, 6): the second.

    Token 2 has one in (0, 4): the first.
    """
    assert [part.tolist() for part in most_context([(0, 4), (2, 6)])] == [
        [True, True, True, False],
        [False, True, True, True],
    ]


def test_of_parts_with_as_much_context_the_longer_has_it_and_else_the_earlier() -> None:
    """Token 2 is the last of (0, 3) and the first of (2, 6) and of (2, 5): nothing beside it anywhere."""
    assert [part.tolist() for part in most_context([(0, 3), (2, 6)])] == [[True, True, False], [True, True, True, True]]
    assert [part.tolist() for part in most_context([(0, 3), (2, 5)])] == [[True, True, True], [False, True, True]]


def test_an_empty_part_has_no_tokens() -> None:
    assert [part.tolist() for part in most_context([(0, 0)])] == [[]]


@given(CUTS)
def test_parts_cover_all_and_share_the_stride(cut: tuple[int, int, int]) -> None:
    tokens, room, stride = cut
    bounds = parts(tokens, room, stride)
    assert bounds[0][0] == 0 and bounds[-1][1] == tokens
    assert all(before[1] - after[0] == stride and before[1] < after[1] for before, after in zip(bounds, bounds[1:]))
    assert all(end - start == room for start, end in bounds[:-1]) and bounds[-1][1] - bounds[-1][0] <= room


@given(CUTS)
def test_each_token_has_the_most_context_in_one_part_as_the_published_loop_finds_it(cut: tuple[int, int, int]) -> None:
    bounds = parts(*cut)
    ours = [[bool(flag) for flag in flags] for flags in most_context(bounds)]
    theirs = [
        [best_part(bounds, token) == part for token in range(start, end)] for part, (start, end) in enumerate(bounds)
    ]
    assert ours == theirs and sum(map(sum, ours)) == cut[0]
    assert all(flags.dtype == np.bool_ for flags in most_context(bounds))


def best_part(bounds: list[tuple[int, int]], token: int) -> int:
    """The rule one token at a time: the first part with the highest score."""
    scores = [
        (min(token - start, end - 1 - token) + 0.01 * (end - start), -part)
        for part, (start, end) in enumerate(bounds)
        if start <= token < end
    ]
    return -max(scores)[1]
