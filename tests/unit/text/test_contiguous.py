"""Sequences without a pair task: every token once, packed as tightly as the law says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.data import FullSentences, SingleSegment
from pipeline.text.pairs import PAIRINGS
from pipeline.text.sequences import Sequences

WINDOWS = st.lists(st.lists(st.integers(0, 30), max_size=6), max_size=6)  # documents of sentences of so many tokens
KINDS = [
    FullSentences(across_documents=True),
    FullSentences(across_documents=False),
    SingleSegment(short_probability=0.3),
]
ACROSS, WITHIN, SINGLE = KINDS


def draw(
    settings: FullSentences | SingleSegment, window: list[list[int]], maximum_length: int, seed: int = 0
) -> Sequences:
    sentences = np.cumsum([0, *(tokens for document in window for tokens in document)]).astype(np.int64)
    documents = np.cumsum([0, *map(len, window)]).astype(np.int64)
    return PAIRINGS[type(settings)](
        settings, sentences, documents, np.zeros(len(window), int), maximum_length, np.random.default_rng(seed)
    )


def ranges(sequences: Sequences) -> list[list[tuple[int, int]]]:
    found = list(zip(sequences.starts.tolist(), sequences.ends.tolist()))
    return [found[start:end] for start, end in zip(sequences.offsets[:-1], sequences.offsets[1:])]


def test_full_sentences_of_one_document_by_hand() -> None:
    """Ten tokens have room: 4 + 6, then 3 + 3 (5 would be too many), then 5, and from the next document 2."""
    window = [[4, 6, 3, 3, 5], [], [0, 2]]
    sequences = draw(WITHIN, window, 12)
    assert ranges(sequences) == [[(0, 10)], [(10, 16)], [(16, 21)], [(21, 23)]]
    assert sequences.document_a.tolist() == sequences.document_b.tolist() == [0, 0, 0, 2]
    assert not sequences.paired and sequences.not_next is None and sequences.swapped is None
    arrays = (sequences.starts, sequences.ends, sequences.offsets, sequences.document_a, sequences.document_b)
    assert [a.dtype for a in arrays] == [np.int64, np.int64, np.int64, np.int32, np.int32]


def test_full_sentences_across_documents_by_hand() -> None:
    """After the 5 there is room for [SEP], the 2, [SEP] and 1 of the last document; its 9 and 1 fill the rest."""
    window = [[4, 6, 3, 3, 5], [], [0, 2], [1, 9, 1]]
    sequences = draw(ACROSS, window, 12)
    assert ranges(sequences) == [[(0, 10)], [(10, 16)], [(16, 21), (21, 23), (23, 24)], [(24, 34)]]
    assert sequences.document_a.tolist() == [0, 0, 0, 3] and sequences.document_b.tolist() == [0, 0, 3, 3]
    assert ranges(draw(ACROSS, [[5], [4]], 12)) == [[(0, 5), (5, 9)]]
    assert ranges(draw(ACROSS, [[5], [5]], 12)) == [[(0, 5)], [(5, 10)]]  # one token too many, with the [SEP] between


def test_a_long_sentence_is_cut_into_parts_by_hand() -> None:
    """23 tokens become 10, 10 and 3; the sentence before has no room for the first, the one after joins the last."""
    for settings in (ACROSS, WITHIN):
        assert ranges(draw(settings, [[2, 23, 7]], 12)) == [[(0, 2)], [(2, 12)], [(12, 22)], [(22, 32)]]


def test_single_segments_by_hand() -> None:
    settings = SingleSegment(short_probability=0)
    sequences = draw(settings, [[4, 8], [], [3], [20]], 12)
    assert ranges(sequences) == [[(0, 10)], [(10, 12)], [(12, 15)], [(15, 25)], [(25, 35)]]
    assert sequences.document_a.tolist() == sequences.document_b.tolist() == [0, 0, 2, 3, 3] and not sequences.paired


def test_short_single_segments_have_a_length_a_document() -> None:
    """A third of 3,000 documents of 19 tokens have a target drawn from 2 to 10."""
    sequences = draw(SingleSegment(short_probability=1 / 3), [[19]] * 3_000, 12)
    first = np.flatnonzero(np.diff(sequences.document_a, prepend=-1))
    all_lengths = sequences.ends - sequences.starts
    lengths = all_lengths[first]
    counts = np.bincount(lengths, minlength=11)
    assert lengths.min() == 2 and lengths.max() == 10
    assert abs(counts[10] - 3_000 * (2 / 3 + 1 / 27)) < 80 and (np.abs(counts[2:10] - 3_000 / 27) < 50).all()
    goes_on = np.flatnonzero(np.diff(sequences.document_a) == 0)
    assert (all_lengths[goes_on] == lengths[sequences.document_a[goes_on]]).all()


@pytest.mark.parametrize("settings", KINDS, ids=["across", "within", "single"])
@given(window=WINDOWS, maximum_length=st.integers(8, 40), seed=st.integers(0, 1000))
def test_every_token_is_in_exactly_one_sequence(
    settings: FullSentences | SingleSegment, window: list[list[int]], maximum_length: int, seed: int
) -> None:
    sequences = draw(settings, window, maximum_length, seed)
    owner = np.repeat(np.arange(len(window)), [sum(document) for document in window])
    covered = [token for found in ranges(sequences) for start, end in found for token in range(start, end)]
    assert covered == list(range(len(owner)))
    for found, a, b in zip(ranges(sequences), sequences.document_a, sequences.document_b, strict=True):
        assert 1 + sum(end - start + 1 for start, end in found) <= maximum_length
        assert [len(set(owner[start:end])) for start, end in found] == [1] * len(found)
        owners = [int(owner[start]) for start, _ in found]
        assert owners == sorted(set(owners)) and (owners[0], owners[-1]) == (a, b)
        assert settings is ACROSS or len(found) == 1


@pytest.mark.parametrize("settings", [ACROSS, WITHIN], ids=["across", "within"])
@given(window=WINDOWS, maximum_length=st.integers(8, 40))
def test_full_sentences_are_packed_one_after_the_other(
    settings: FullSentences, window: list[list[int]], maximum_length: int
) -> None:
    """Reference, one sentence at a time: each joins the sequence before unless too long or of another document."""
    maximum = maximum_length - 2
    expected: list[int] = []  # where sequences begin
    place = room = 0
    for document in window:
        document_is_new = True
        for sentence in document:
            for size in [maximum] * (sentence // maximum) + [sentence % maximum] * (sentence % maximum > 0):
                separator = 1 if document_is_new else 0
                if not expected or size + separator > room or document_is_new and settings is WITHIN:
                    expected.append(place)
                    room, separator = maximum, 0
                room, place, document_is_new = room - size - separator, place + size, False
    sequences = draw(settings, window, maximum_length)
    assert sequences.starts[sequences.offsets[:-1]].tolist() == expected
