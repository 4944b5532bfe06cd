"""Distribution of next-sentence pairs, against hand-worked cases and a token-by-token form of google's algorithm."""

import random
import typing
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from pipeline.config.data import NextSentence, Sampling
from pipeline.text.chunks import truncate
from pipeline.text.next_sentence import next_sentence_pairs
from pipeline.text.pairs import PAIRINGS
from pipeline.text.sequences import Sequences, follow_chain

# documents of sentences of so many tokens
WINDOWS = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6)


def draw(
    window: list[list[int]], parents: list[int], maximum_length: int, seed: int = 0, short: float = 0.1
) -> Sequences:
    lengths = [tokens for document in window for tokens in document]
    sentences = np.cumsum([0, *lengths]).astype(np.int64)
    documents = np.cumsum([0, *map(len, window)]).astype(np.int64)
    return next_sentence_pairs(
        NextSentence(short_probability=short),
        sentences,
        documents,
        np.array(parents),
        maximum_length,
        np.random.default_rng(seed),
    )


def rows(pairs: Sequences) -> list[tuple[int, ...]]:
    """(a_start, a_end, b_start, b_end, not_next, document_a, document_b) of each pair."""
    assert pairs.not_next is not None and pairs.swapped is None and (np.diff(pairs.offsets) == 2).all()
    ranges = np.stack((pairs.starts, pairs.ends), axis=1).reshape(-1, 4).T
    return list(zip(*(array.tolist() for array in (*ranges, pairs.not_next, pairs.document_a, pairs.document_b))))


def test_the_table_has_every_kind_of_pairs() -> None:
    assert set(PAIRINGS) == set(typing.get_args(typing.get_type_hints(Sampling)["pairs"]))


def test_a_chain_by_hand() -> None:
    """0 is followed by 2, 2 by 3, 3 by what is not there; 1 is not reached."""
    assert follow_chain(np.array([2, 4, 3, 5, 5])).tolist() == [0, 2, 3]
    assert follow_chain(np.zeros(0, np.int64)).tolist() == []


def test_sequences_are_taken_by_hand() -> None:
    """Three sequences of two, one and three ranges; the last and the first are taken."""
    fields = {"starts": np.arange(6), "ends": np.arange(6) + 10, "offsets": np.array([0, 2, 3, 6])}
    taken = Sequences(
        **fields, document_a=np.array([7, 8, 9]), document_b=np.array([4, 5, 6]), swapped=np.array([True, False, False])
    ).take(np.array([2, 0]))
    assert (taken.starts.tolist(), taken.ends.tolist(), taken.offsets.tolist()) == (
        [3, 4, 5, 0, 1],
        [13, 14, 15, 10, 11],
        [0, 3, 5],
    )
    assert (taken.document_a.tolist(), taken.document_b.tolist()) == ([9, 7], [6, 4])
    assert (
        taken.swapped is not None
        and taken.swapped.tolist() == [False, True]
        and taken.not_next is None
        and taken.paired
    )


def test_one_parent_of_two_sentences_by_hand() -> None:
    pairs = draw([[3, 2], [1, 4]], [7, 7], 128)
    assert rows(pairs) == [(0, 3, 3, 5, False, 0, 0), (5, 6, 6, 10, False, 1, 1)]
    arrays = (pairs.starts, pairs.ends, pairs.offsets, pairs.not_next, pairs.document_a, pairs.document_b)
    assert [a.dtype for a in arrays if a is not None] == [np.int64, np.int64, np.int64, bool, np.int32, np.int32]


def test_single_sentences_of_two_parents_by_hand() -> None:
    assert rows(draw([[3], [4], [2]], [0, 1, 0], 128, seed=1))[1:2] in (
        [(3, 7, 0, 3, True, 1, 0)],
        [(3, 7, 7, 9, True, 1, 2)],
    )
    assert all(row[6] == 1 for row in rows(draw([[3], [4], [2]], [0, 1, 0], 128))[::2])


def test_empty_sentences_and_documents_are_passed_over() -> None:
    assert rows(draw([[], [0, 3, 0, 2, 0], [0], []], [0, 0, 1, 2], 128)) == [(0, 3, 3, 5, False, 1, 1)]
    assert rows(draw([[0, 3], [0], [0, 4]], [0, 1, 2], 128)) == [(0, 3, 3, 7, True, 0, 2), (3, 7, 0, 3, True, 2, 0)]


@pytest.mark.parametrize("window", [[], [[]], [[0]], [[5]], [[5], [3]]])
def test_a_window_without_pairs_gives_none(window: list[list[int]]) -> None:
    assert len(draw(window, [1] * len(window), 128)) == 0


def test_chunks_end_at_the_target_and_unused_sentences_come_back() -> None:
    """Five tokens are the target.

    With one parent the chunks are [2, 3] and [1, 4]; after a NotNext pair the rest of its chunk starts the next.
    """
    assert rows(draw([[2, 3, 1, 4, 9]], [0], 8, short=0)) == [(0, 2, 2, 5, False, 0, 0), (5, 6, 6, 10, False, 0, 0)]
    seen = set()
    for seed in range(400):
        of_first = [row for row in rows(draw([[1] * 10, [1] * 10], [0, 1], 8, seed=seed, short=0)) if row[5] == 0]
        seen.add(tuple((row[0], row[1], row[4]) for row in of_first)[:2])
        for before, after in zip(of_first, of_first[1:]):
            assert after[0] == (before[1] if before[4] else before[3])
    starts = {tuple((start, not_next) for start, _, not_next in example) for example in seen}
    assert {
        ((0, False), (5, False)),
        ((0, False), (5, True)),
        ((0, True), (1, True)),
        ((0, True), (4, False)),
    } <= starts
    assert {example[0][1] for example in seen} == {1, 2, 3, 4}


@given(WINDOWS, st.data(), st.integers(8, 30), st.integers(0, 1000))
def test_every_pair_keeps_the_rules(
    window: list[list[int]], data: st.DataObject, maximum_length: int, seed: int
) -> None:
    parents = data.draw(st.lists(st.integers(0, 2), min_size=len(window), max_size=len(window)))
    pairs = draw(window, parents, maximum_length, seed)
    owner = np.repeat(np.arange(len(window)), [sum(document) for document in window])
    for a_start, a_end, b_start, b_end, not_next, document_a, document_b in rows(pairs):
        assert a_start < a_end and b_start < b_end
        length = a_end - a_start + b_end - b_start
        assert length <= maximum_length - 3
        assert set(owner[a_start:a_end]) == {document_a} and set(owner[b_start:b_end]) == {document_b}
        assert not_next == (parents[document_a] != parents[document_b])
        if not not_next:
            assert document_a == document_b and a_end <= b_start
            assert a_end == b_start or length == maximum_length - 3  # only truncation parts them
    filled = {parent for parent, document in zip(parents, window) if sum(document)}
    if len(filled) == 1:
        assert pairs.not_next is not None and not pairs.not_next.any()


@given(WINDOWS, st.integers(8, 30), st.integers(0, 1000))
def test_the_same_generator_gives_the_same_pairs(window: list[list[int]], maximum_length: int, seed: int) -> None:
    parents = list(range(len(window)))
    assert rows(draw(window, parents, maximum_length, seed)) == rows(draw(window, parents, maximum_length, seed))


def test_documents_of_other_parents_are_equally_likely() -> None:
    parents = [0, 1, 0, 2, 1, 0]
    counts: Counter[tuple[int, int]] = Counter()
    for seed in range(2_000):
        counts.update((row[5], row[6]) for row in rows(draw([[3]] * 6, parents, 128, seed)))
    expected = {
        (a, b): 2_000 / sum(p != parents[a] for p in parents)
        for a in range(6)
        for b in range(6)
        if parents[a] != parents[b]
    }
    assert counts.keys() == expected.keys()
    assert all(abs(counts[pair] - mean) < 4.5 * mean**0.5 for pair, mean in expected.items())


def test_the_share_of_short_targets() -> None:
    """Documents have 400 sentences of one token: a short one has a first pair below 97 tokens.

    One in 96 of the targets 2 to 97 is 97.
    """
    pairs = draw([[1] * 400] * 4_000, list(range(4_000)), 100, short=0.3)
    first = np.flatnonzero(np.diff(pairs.document_a, prepend=-1))
    assert pairs.not_next is not None
    lengths = (pairs.ends - pairs.starts).reshape(-1, 2).sum(axis=1)[first]
    next_lengths = lengths[~pairs.not_next[first]]
    assert abs((next_lengths < 97).mean() - 0.3 * 95 / 96) < 0.03
    short = next_lengths[next_lengths < 97]
    assert short.min() == 2 and abs(short.mean() - 49) < 4


def google_truncate(a: list[int], b: list[int], maximum: int, rng: random.Random) -> None:
    while len(a) + len(b) > maximum:
        longer = a if len(a) > len(b) else b
        del longer[0 if rng.random() < 0.5 else -1]


@given(st.integers(1, 40), st.integers(1, 40), st.integers(5, 40), st.integers(0, 100))
def test_truncation_leaves_the_lengths_that_google_leaves(a: int, b: int, maximum: int, seed: int) -> None:
    theirs = list(range(a)), list(range(b))
    google_truncate(*theirs, maximum, random.Random(seed))
    zero = np.zeros(1, np.int64)
    a_start, a_end, b_start, b_end = truncate(
        zero, zero + a, zero + a, zero + a + b, maximum=maximum, rng=np.random.default_rng(seed)
    )
    assert (a_end - a_start, b_end - b_start) == (len(theirs[0]), len(theirs[1]))
    assert 0 <= a_start < a_end <= a <= b_start < b_end <= a + b


def test_truncation_cuts_from_both_ends_by_a_fair_coin() -> None:
    """A loses 4 of its 10 tokens; the number lost from the front is Binomial(4, 1/2)."""
    n = 32_000
    start = np.zeros(n, np.int64)
    a_start, a_end, _, _ = truncate(start, start + 10, start + 10, start + 12, maximum=8, rng=np.random.default_rng(0))
    assert set(a_end - a_start) == {6}
    shares = np.bincount(a_start) / n
    assert np.allclose(shares, np.array([1, 4, 6, 4, 1]) / 16, atol=0.012)


def google_pairs(
    window: list[list[list[int]]], maximum: int, short: float, rng: random.Random
) -> list[tuple[list[int], list[int], bool]]:
    """Reimplementation of google-research/bert's create_instances_from_document; sentences are lists of tokens."""
    found = []
    for number, document in enumerate(window):
        target = rng.randint(2, maximum) if rng.random() < short else maximum
        chunk: list[list[int]] = []
        i = 0
        while i < len(document):
            chunk.append(document[i])
            if i == len(document) - 1 or sum(map(len, chunk)) >= target:
                cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
                a = [token for sentence in chunk[:cut] for token in sentence]
                b: list[int] = []
                not_next = len(chunk) == 1 or rng.random() < 0.5
                if not_next:
                    wanted = target - len(a)
                    other = number
                    while other == number:
                        other = rng.randrange(len(window))
                    for sentence in window[other][rng.randrange(len(window[other])) :]:
                        b += sentence
                        if len(b) >= wanted:
                            break
                    i -= len(chunk) - cut
                else:
                    b = [token for sentence in chunk[cut:] for token in sentence]
                google_truncate(a, b, maximum, rng)
                found.append((a, b, not_next))
                chunk = []
            i += 1
    return found


@pytest.mark.parametrize(
    ("kinds", "maximum_length", "short"),
    [([[3, 2], [4], [1, 3, 2]], 11, 0.1), ([[2, 1, 1, 3, 1, 2], [9]], 8, 0.5), ([[1, 1, 2], [5, 4]], 9, 1.0)],
)
def test_pairs_have_the_distribution_of_googles(kinds: list[list[int]], maximum_length: int, short: float) -> None:
    """Return a window of many copies of a few documents, each copy its own parent.

    Tokens are identified by their position in the first copies.
    """
    copies = 6_000
    window = kinds * copies
    period = sum(map(sum, kinds))
    places = np.cumsum([0, *(tokens for document in window for tokens in document)]).tolist()
    sentences = iter(list(range(start, end)) for start, end in zip(places[:-1], places[1:]))
    tokens = [[next(sentences) for _ in document] for document in window]
    theirs = Counter(
        (a[0] % period, len(a), b[0] % period, len(b), n)
        for a, b, n in google_pairs(tokens, maximum_length - 3, short, random.Random(1))
    )
    ours = Counter(
        (a_start % period, a_end - a_start, b_start % period, b_end - b_start, n)
        for a_start, a_end, b_start, b_end, n, _, _ in rows(
            draw(window, list(range(len(window))), maximum_length, 2, short)
        )
    )
    common = [kind for kind in ours | theirs if ours[kind] + theirs[kind] >= 20]
    assert sum(ours[kind] for kind in common) > 0.98 * ours.total()
    assert chi2_contingency([[ours[kind] for kind in common], [theirs[kind] for kind in common]]).pvalue > 1e-3
    assert abs(ours.total() - theirs.total()) < 5 * theirs.total() ** 0.5
