"""Words of sequences and random spans of them, by hand and against the law told again in plain Python."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.words import Words, draw_spans, draw_words, single_pieces, whole_words

PAD, UNK, CLS, SEP, MASK = range(5)
A, B, MORE = 5, 6, 7
VOCABULARY = Vocabulary(tokens=(*SPECIALS, "a", "b", "##c"), lowercase=True)
SEGMENTS = st.lists(st.lists(st.integers(1, 3), max_size=5), max_size=3)  # words of so many pieces


def words_of(sequences: list[list[list[int]]]) -> Words:
    """Words of sequences [CLS] segment [SEP] segment [SEP] … whose segments are lists of sizes."""
    ids, offsets = [], [0]
    for segments in sequences:
        ids.append(CLS)
        for segment in segments:
            ids += [piece for size in segment for piece in [A] + [MORE] * (size - 1)] + [SEP]
        offsets.append(len(ids))
    return whole_words(np.array(ids, np.int32), np.array(offsets), VOCABULARY)


def test_words_by_hand() -> None:
    """[CLS] a ##c b [SEP] ##c ##c a [SEP] | [CLS] [SEP] | [CLS] b [UNK] ##c [MASK] [PAD]: four words, none, three."""
    ids = np.array([CLS, A, MORE, B, SEP, MORE, MORE, A, SEP, CLS, SEP, CLS, B, UNK, MORE, MASK, PAD], np.int32)
    offsets = np.array([0, 9, 11, 17])
    words = whole_words(ids, offsets, VOCABULARY)
    assert words.starts.tolist() == [1, 3, 5, 7, 12, 13, 15] and words.sizes.tolist() == [2, 1, 2, 1, 1, 2, 1]
    assert words.bounds.tolist() == [0, 4, 4, 7]
    assert (
        words.positions(np.array([0, 2, 5])).tolist() == [1, 2, 5, 6, 13, 14]
        and words.positions(np.array([], int)).tolist() == []
    )
    pieces = single_pieces(ids, offsets, VOCABULARY)
    assert (
        pieces.starts.tolist() == [1, 2, 3, 5, 6, 7, 12, 13, 14, 15]
        and set(pieces.sizes) == {1}
        and pieces.bounds.tolist() == [0, 6, 6, 10]
    )


def test_a_marked_token_begins_a_word_by_hand() -> None:
    ids = np.array([CLS, A, MORE, MORE, MORE, SEP, MORE, MORE, SEP], np.int32)
    begins = np.array([False, True, False, True, False, True, True, False, False])
    words = whole_words(ids, np.array([0, 9]), VOCABULARY, begins)
    assert words.starts.tolist() == [1, 3, 6] and words.sizes.tolist() == [2, 2, 2]


def test_spans_of_one_length_by_hand() -> None:
    """All spans have two words.

    Segments of words of 1, 2 and of 2, 2 pieces, and room for 3: the first pair, or one word of the second.
    """
    words = words_of([[[1, 2], [2, 2]]] * 500)
    for over_masked in (False, True):
        taken, tied = draw_spans(
            words, np.full(500, 3), np.array([0.0, 1.0]), np.random.default_rng(0), over_masked=over_masked
        )
        outcomes = Counter(
            (tuple(t), tuple(j)) for t, j in zip(taken.reshape(-1, 4).tolist(), tied.reshape(-1, 4).tolist())
        )
        T, F = True, False
        expected = {
            ((T, T, F, F), (F, T, F, F)),  # from the first word on
            # a single word of the second segment, then the first word
            ((T, F, F, T), (F, F, F, F)), ((T, F, T, F), (F, F, F, F)),
            ((T, T, F, F), (F, F, F, F)),  # the last word of the first segment, then, trimmed, the first
        }  # fmt: skip
        if over_masked:  # the first word's span goes on over the second, and is one with it
            expected -= {((T, T, F, F), (F, F, F, F))}
        assert set(outcomes) == expected


def plain_spans(
    segments: list[list[int]], count: int, shares: list[float], over_masked: bool, rng: random.Random
) -> tuple[frozenset[int], frozenset[int]]:
    """The law of draw_spans for one sequence, a word at a time: (words taken, words tied to the word before)."""
    sizes = [size for segment in segments for size in segment]
    ends = [end for n, segment in enumerate(segments) for end in [sum(map(len, segments[: n + 1]))] * len(segment)]
    taken: set[int] = set()
    tied: set[int] = set()
    room = count
    order = list(range(len(sizes)))
    rng.shuffle(order)
    for start in order:
        length = rng.choices(range(1, len(shares) + 1), shares)[0]
        span = list(range(start, min(start + length, ends[start])))
        while span and sum(sizes[word] for word in span if not (over_masked and word in taken)) > room:
            span.pop()
        if room == 0 or not span or start in taken or not over_masked and taken & set(span):
            continue
        room -= sum(sizes[word] for word in span if word not in taken)
        taken |= set(span)
        tied |= set(span[1:])
    return frozenset(taken), frozenset(tied)


@pytest.mark.parametrize("over_masked", [False, True])
@pytest.mark.parametrize(
    ("segments", "count", "shares"),
    [
        ([[1, 2, 1, 1], [3, 1]], 4, [0.5, 0.3, 0.2]),
        ([[1, 1, 1, 1, 1]], 4, [0.2, 0.2, 0.6]),
        ([[2, 1, 2], [1]], 9, [0.4, 0.6]),
        ([[3], [1, 2]], 2, [0.1, 0.9]),
    ],
)
def test_spans_have_the_distribution_of_the_law(
    segments: list[list[int]], count: int, shares: list[float], over_masked: bool
) -> None:
    n, rng = 8_000, random.Random(1)
    taken, tied = draw_spans(
        words_of([segments] * n), np.full(n, count), np.array(shares), np.random.default_rng(2), over_masked=over_masked
    )
    size = sum(map(len, segments))
    ours = Counter(
        (frozenset(np.flatnonzero(t).tolist()), frozenset(np.flatnonzero(j).tolist()))
        for t, j in zip(taken.reshape(n, size), tied.reshape(n, size))
    )
    theirs = Counter(plain_spans(segments, count, shares, over_masked, rng) for _ in range(n))
    common = [kind for kind in ours | theirs if ours[kind] + theirs[kind] >= 20]
    assert sum(ours[kind] for kind in common) > 0.99 * n
    assert (
        len(common) == 1
        or chi2_contingency([[ours[kind] for kind in common], [theirs[kind] for kind in common]]).pvalue > 1e-3
    )


@given(st.lists(SEGMENTS, max_size=5), st.integers(1, 8), st.integers(0, 1000))
def test_words_drawn_one_by_one_are_spans_of_one_word(sequences: list[list[list[int]]], count: int, seed: int) -> None:
    words, counts = words_of(sequences), np.full(len(sequences), count)
    taken = draw_words(words, counts, np.random.default_rng(seed))
    for first, last in zip(words.bounds[:-1], words.bounds[1:]):
        spent = words.sizes[first:last][taken[first:last]].sum()
        assert spent <= count and (taken[first:last] | (words.sizes[first:last] > count - spent)).all()
