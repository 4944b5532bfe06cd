"""The law of sentence-order pairs, by hand and against google-research/albert's algorithm told again."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from pipeline.config.data import SentenceOrder
from pipeline.text.sentence_order import sentence_order_pairs

Row = tuple[int, int, int, int, bool, int]
WINDOWS = st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=6)


def draw(window: list[list[int]], maximum_length: int, seed: int = 0, short: float = 0.1) -> list[Row]:
    """(a_start, a_end, b_start, b_end, swapped, document) of each pair; documents are sentences of so many tokens."""
    sentences = np.cumsum([0, *(tokens for document in window for tokens in document)]).astype(np.int64)
    documents = np.cumsum([0, *map(len, window)]).astype(np.int64)
    pairs = sentence_order_pairs(
        SentenceOrder(short_probability=short),
        sentences,
        documents,
        np.zeros(len(window), int),
        maximum_length,
        np.random.default_rng(seed),
    )
    assert pairs.swapped is not None and pairs.not_next is None and (np.diff(pairs.offsets) == 2).all() and pairs.paired
    assert (pairs.document_a == pairs.document_b).all() and pairs.document_a.dtype == np.int32
    ranges = np.stack((pairs.starts, pairs.ends), axis=1).reshape(-1, 4).T
    return list(zip(*(array.tolist() for array in (*ranges, pairs.swapped, pairs.document_a))))


def test_two_documents_of_two_sentences_by_hand() -> None:
    first, second = ((0, 3, 3, 5, False, 0), (3, 5, 0, 3, True, 0)), ((5, 6, 6, 10, False, 1), (6, 10, 5, 6, True, 1))
    seen = Counter(tuple(draw([[3, 2], [1, 4]], 128, seed, short=0)) for seed in range(2_000))
    assert seen.keys() == {(a, b) for a in first for b in second}
    assert all(abs(count - 500) < 100 for count in seen.values())


@pytest.mark.parametrize("window", [[], [[]], [[0, 0]], [[5], [3]], [[0, 200, 0]]])
def test_a_single_sentence_gives_no_pair(window: list[list[int]]) -> None:
    assert draw(window, 128) == []


@given(WINDOWS, st.integers(8, 30), st.integers(0, 1000))
def test_every_pair_keeps_the_rules(window: list[list[int]], maximum_length: int, seed: int) -> None:
    pairs = draw(window, maximum_length, seed)
    owner = np.repeat(np.arange(len(window)), [sum(document) for document in window])
    end_before = 0
    for a_start, a_end, b_start, b_end, swapped, document in pairs:
        length = a_end - a_start + b_end - b_start
        assert a_start < a_end and b_start < b_end and length <= maximum_length - 3
        (_, first_end), (second_start, second_end) = sorted([(a_start, a_end), (b_start, b_end)])
        assert swapped == (a_start > b_start) and first_end <= second_start
        assert first_end == second_start or length == maximum_length - 3  # only truncation parts them
        assert min(a_start, b_start) >= end_before and set(owner[[a_start, a_end - 1, b_start, b_end - 1]]) == {
            document
        }
        end_before = second_end
    assert pairs == draw(window, maximum_length, seed)


def albert_pairs(
    window: list[list[list[int]]], maximum: int, short: float, rng: random.Random
) -> list[tuple[list[int], list[int], bool]]:
    """Reimplementation of create_instances_from_document without random_next_sentence or single-sentence chunks."""
    found = []
    for document in window:
        target = rng.randint(2, maximum) if rng.random() < short else maximum
        chunk: list[list[int]] = []
        for i, sentence in enumerate(document):
            chunk.append(sentence)
            if i < len(document) - 1 and sum(map(len, chunk)) < target:
                continue
            if len(chunk) > 1:
                cut = rng.randint(1, len(chunk) - 1)
                a, b = sum(chunk[:cut], []), sum(chunk[cut:], [])
                swapped = rng.random() < 0.5
                if swapped:
                    a, b = b, a
                while len(a) + len(b) > maximum:
                    del (a if len(a) > len(b) else b)[0 if rng.random() < 0.5 else -1]
                found.append((a, b, swapped))
            chunk = []
    return found


@pytest.mark.parametrize(
    ("kinds", "maximum_length", "short"),
    [([[3, 2], [4], [1, 3, 2]], 11, 0.1), ([[2, 1, 1, 3, 1, 2], [9]], 8, 0.5), ([[1, 1, 2], [5, 4]], 9, 1.0)],
)
def test_pairs_have_the_distribution_of_alberts(kinds: list[list[int]], maximum_length: int, short: float) -> None:
    """A window of many copies of a few documents; tokens are told apart by their place in the first copies."""
    window = kinds * 6_000
    period = sum(map(sum, kinds))
    places = np.cumsum([0, *(tokens for document in window for tokens in document)]).tolist()
    sentences = iter(list(range(start, end)) for start, end in zip(places[:-1], places[1:]))
    tokens = [[next(sentences) for _ in document] for document in window]
    theirs = Counter(
        (a[0] % period, len(a), b[0] % period, len(b), s)
        for a, b, s in albert_pairs(tokens, maximum_length - 3, short, random.Random(1))
    )
    ours = Counter(
        (a % period, a_end - a, b % period, b_end - b, s)
        for a, a_end, b, b_end, s, _ in draw(window, maximum_length, 2, short)
    )
    common = [kind for kind in ours | theirs if ours[kind] + theirs[kind] >= 20]
    assert sum(ours[kind] for kind in common) > 0.98 * ours.total()
    assert chi2_contingency([[ours[kind] for kind in common], [theirs[kind] for kind in common]]).pvalue > 1e-3
    assert abs(ours.total() - theirs.total()) < 5 * theirs.total() ** 0.5
