import typing
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from pipeline.config.data import NgramMasking, Sampling, SpanMasking, TokenMasking, WholeWordMasking
from pipeline.text.masking import MASKINGS, MaskedIds, mask
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = Vocabulary(
    tokens=(*SPECIALS, "[unused0]", *LETTERS, *(f"##{letter}" for letter in LETTERS)), lowercase=True
)
PAD, UNK, CLS, SEP, MASK = range(5)
FIRST_CONTINUATION = VOCABULARY.ids["##a"]
KINDS = [TokenMasking, WholeWordMasking, SpanMasking, NgramMasking]
OF_WHOLE_WORDS = KINDS[1:]
# segments as ids of text, so that sequences are [CLS] A [SEP] B [SEP]
SEGMENT = st.lists(st.integers(6, VOCABULARY.size - 1), max_size=25)
SEQUENCES = st.lists(st.tuples(SEGMENT, SEGMENT), max_size=6)
SHARES = st.sampled_from([0.0, 0.15, 0.3, 1.0])


def flat(sequences: list[tuple[list[int], list[int]]]) -> tuple[np.ndarray, np.ndarray]:
    runs = [[CLS, *a, SEP, *b, SEP] for a, b in sequences]
    return np.array([i for run in runs for i in run], np.int32), np.cumsum([0, *map(len, runs)]).astype(np.int64)


def uniform(n: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """`n` sequences with `length` ids of text each, words of one piece."""
    return flat([([6 + i % 26 for i in range(length - 4)], [6, 7, 8, 9])] * n)


def draw(settings: TokenMasking, ids: np.ndarray, offsets: np.ndarray, seed: int = 0) -> MaskedIds:
    return mask(settings, ids, offsets, VOCABULARY, np.random.default_rng(seed))


def words(ids: np.ndarray) -> list[list[int]]:
    """Places of the words of one sequence, found piece by piece."""
    found: list[list[int]] = []
    for place, i in enumerate(ids):
        if i in (CLS, SEP):
            continue
        if i >= FIRST_CONTINUATION and found and found[-1][-1] == place - 1:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def test_the_table_has_every_kind_of_masking() -> None:
    assert set(MASKINGS) == set(typing.get_args(typing.get_type_hints(Sampling)["masking"]))


def test_the_masks_of_a_seed_are_these_for_ever() -> None:
    """A literal: a run that an older version started must go on with the same masks."""
    ids, offsets = flat([(list(range(6, 58, 2)), list(range(57, 7, -3)))] * 9)
    found = {kind.__name__: zlib.crc32(draw(kind(), ids, offsets).ids.tobytes()) for kind in KINDS}
    assert found == {
        "TokenMasking": 317212079,
        "WholeWordMasking": 3227942496,
        "SpanMasking": 674178257,
        "NgramMasking": 3101762357,
    }


@pytest.mark.parametrize("kind", KINDS)
@given(sequences=SEQUENCES, share=SHARES, seed=st.integers(0, 1000))
def test_labels_restore_the_ids_and_specials_stay(kind: type, sequences: list, share: float, seed: int) -> None:
    ids, offsets = flat(sequences)
    before = ids.copy()
    masked = draw(kind(share=share), ids, offsets, seed)
    assert (ids == before).all()
    restored = masked.ids.copy()
    restored[masked.positions] = masked.labels
    assert (restored == ids).all()
    assert not np.isin(masked.labels, (PAD, CLS, SEP)).any()
    assert (np.diff(masked.positions) > 0).all()
    assert [masked.ids.dtype, masked.positions.dtype, masked.labels.dtype, masked.offsets.dtype] == [
        np.int32,
        np.int64,
        np.int32,
        np.int64,
    ]
    assert (
        len(masked.offsets) == len(offsets) and masked.offsets[-1] == len(masked.positions) and masked.offsets[0] == 0
    )
    for n in range(len(sequences)):
        own = masked.positions[masked.offsets[n] : masked.offsets[n + 1]]
        assert ((offsets[n] <= own) & (own < offsets[n + 1])).all()


@given(sequences=SEQUENCES, share=SHARES, seed=st.integers(0, 1000))
def test_token_masking_masks_the_rounded_share_of_the_whole_length(sequences: list, share: float, seed: int) -> None:
    ids, offsets = flat(sequences)
    masked = draw(TokenMasking(share=share), ids, offsets, seed)
    expected = [min(len(a) + len(b), max(1, round(share * (len(a) + len(b) + 3)))) for a, b in sequences]
    assert np.diff(masked.offsets).tolist() == expected


@pytest.mark.parametrize(("length", "count"), [(4, 1), (10, 2), (29, 4), (30, 4), (31, 5), (128, 19), (512, 77)])
def test_counts_by_hand(length: int, count: int) -> None:
    """0.15 * 10 = 1.5 and 0.15 * 30 = 4.5 round to the even number, as Python's round and google's code do."""
    ids, offsets = flat([([6] * (length - 3), [])])
    assert len(draw(TokenMasking(), ids, offsets).positions) == count


@pytest.mark.parametrize("kind", OF_WHOLE_WORDS)
@given(sequences=SEQUENCES, share=SHARES, seed=st.integers(0, 1000))
def test_the_count_is_never_exceeded_and_words_stay_whole(kind: type, sequences: list, share: float, seed: int) -> None:
    ids, offsets = flat(sequences)
    masked = draw(kind(share=share), ids, offsets, seed)
    for n in range(len(sequences)):
        own = set((masked.positions[masked.offsets[n] : masked.offsets[n + 1]] - offsets[n]).tolist())
        length = int(offsets[n + 1] - offsets[n])
        assert len(own) <= max(1, round(share * length))
        for word in words(ids[offsets[n] : offsets[n + 1]]):
            assert own.issuperset(word) or own.isdisjoint(word)


@pytest.mark.parametrize("kind", [WholeWordMasking, SpanMasking])
@given(sequences=SEQUENCES, share=SHARES, seed=st.integers(0, 1000))
def test_words_are_masked_until_no_other_fits(kind: type, sequences: list, share: float, seed: int) -> None:
    """Not so n-grams: a run with a masked word in it is passed over for good, whatever room is left."""
    ids, offsets = flat(sequences)
    masked = draw(kind(share=share), ids, offsets, seed)
    for n in range(len(sequences)):
        own = set((masked.positions[masked.offsets[n] : masked.offsets[n + 1]] - offsets[n]).tolist())
        length = int(offsets[n + 1] - offsets[n])
        room = max(1, round(share * length)) - len(own)
        for word in words(ids[offsets[n] : offsets[n + 1]]):
            assert own.issuperset(word) or len(word) > room


@pytest.mark.parametrize("kind", [TokenMasking, WholeWordMasking])
def test_every_place_is_equally_likely(kind: type) -> None:
    n, length = 20_000, 17  # round(0.15 * 20) = 3 of 17 candidates
    ids, offsets = uniform(n, length)
    masked = draw(kind(), ids, offsets)
    counts = np.bincount(masked.positions % 20, minlength=20)
    candidates = [place for place in range(20) if ids[place] not in (CLS, SEP)]
    mean = n * 3 / 17
    assert len(candidates) == 17 and counts.sum() == n * 3
    assert (np.abs(counts[candidates] - mean) < 4.5 * mean**0.5).all()


def test_pairs_of_places_are_equally_likely() -> None:
    n = 30_000
    ids, offsets = flat([([6, 7, 8], [9, 10])] * n)
    masked = draw(TokenMasking(share=0.25), ids, offsets)  # 2 of 5 candidates
    chosen = masked.positions.reshape(n, 2) % 8
    _, counts = np.unique(chosen, axis=0, return_counts=True)
    assert len(counts) == 10 and (np.abs(counts - n / 10) < 4.5 * (n / 10) ** 0.5).all()


def test_long_and_short_words_come_in_random_order() -> None:
    """Words of 1, 1 and 2 pieces, room for 2: both single ones are taken, or the long one if it is first (1 in 3)."""
    a, b, c = 6, 7, 8
    ids, offsets = flat([([a, b, c, FIRST_CONTINUATION], [])] * 30_000)
    masked = draw(WholeWordMasking(share=0.3), ids, offsets)  # round(0.3 * 7) = 2
    long = np.isin(masked.positions % 7, (3, 4)).mean()
    assert abs(long - 1 / 3) < 0.015


@pytest.mark.parametrize("kind", KINDS)
def test_most_become_mask_some_random_and_some_stay(kind: type) -> None:
    ids, offsets = uniform(4_000, 97)
    masked = draw(kind(), ids, offsets)
    now = masked.ids[masked.positions]
    m = len(now)
    assert m == 4_000 * 15 or kind is NgramMasking and m > 4_000 * 14
    ordinary = len(VOCABULARY.ordinary_ids)
    assert abs((now == MASK).mean() - 0.8) < 0.008
    assert abs((now == masked.labels).mean() - (0.1 + 0.1 / ordinary)) < 0.006
    random = now[(now != MASK) & (now != masked.labels)]
    assert set(random) <= set(VOCABULARY.ordinary_ids) and set(random) == set(VOCABULARY.ordinary_ids)
    counts = np.bincount(random, minlength=VOCABULARY.size)[VOCABULARY.ordinary_ids]
    assert counts.std() / counts.mean() < 0.2


@pytest.mark.parametrize(("mask_share", "random_share"), [(1.0, 0.0), (0.0, 0.0), (0.0, 1.0)])
def test_the_shares_at_their_ends(mask_share: float, random_share: float) -> None:
    ids, offsets = uniform(50, 97)
    masked = draw(TokenMasking(mask_share=mask_share, random_share=random_share), ids, offsets)
    now = masked.ids[masked.positions]
    assert (now == MASK).mean() == mask_share
    assert ((now == masked.labels).mean() == 1) == (mask_share + random_share == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_never_masked(kind: type) -> None:
    ids, offsets = np.array([CLS, 6, SEP, PAD, PAD, CLS, PAD, SEP], np.int32), np.array([0, 5, 8])
    masked = draw(kind(share=1.0), ids, offsets)
    assert masked.positions.tolist() == [1] and masked.offsets.tolist() == [0, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_may_be_none_or_without_candidates(kind: type) -> None:
    for sequences in ([], [([], [])], [([], []), ([6], [])]):
        masked = draw(kind(), *flat(sequences))
        assert len(masked.positions) == sum(len(a) for a, _ in sequences) and len(masked.offsets) == len(sequences) + 1


@pytest.mark.parametrize("kind", OF_WHOLE_WORDS)
def test_pieces_after_a_bound_are_no_part_of_the_word_before_it(kind: type) -> None:
    """[CLS] a ##a [SEP] ##a ##a [SEP]: of four pieces two are masked, both of one word."""
    ids, offsets = flat([([6, FIRST_CONTINUATION], [FIRST_CONTINUATION] * 2)] * 200)
    masked = draw(kind(share=0.3), ids, offsets)
    assert {tuple(pair) for pair in (masked.positions.reshape(200, 2) % 7).tolist()} == {(1, 2), (4, 5)}


@pytest.mark.parametrize("kind", OF_WHOLE_WORDS)
def test_a_sequence_of_words_that_are_too_long_has_no_masks(kind: type) -> None:
    """A word of 25 pieces where 4 may be masked; beside it a sequence that also has one of three, and one of two."""
    long, three, two = [6] + [FIRST_CONTINUATION] * 24, [7] + [FIRST_CONTINUATION] * 2, [8, FIRST_CONTINUATION]
    ids, offsets = flat([(long, []), (long + three, []), (long, two), (long, [])])
    masked = draw(kind(), ids, offsets)
    assert np.diff(masked.offsets).tolist() == [0, 3, 2, 0]


def test_the_vocabulary_says_what_continues_a_word() -> None:
    """Pieces without a mark that continue words, as in byte-level vocabularies."""
    vocabulary = Vocabulary(tokens=(*SPECIALS, "Ga", "Gb", "c", "d"), lowercase=False)
    vocabulary.__dict__["continuation"] = np.array([token in ("c", "d") for token in vocabulary.tokens])
    ids, offsets = np.array([CLS, 5, 7, 8, 6, 7, 8, SEP] * 100, np.int32), np.arange(0, 801, 8)
    masked = mask(WholeWordMasking(share=0.4), ids, offsets, vocabulary, np.random.default_rng(0))
    assert {tuple(word) for word in (masked.positions.reshape(100, 3) % 8).tolist()} == {(1, 2, 3), (4, 5, 6)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_generator_gives_the_same_masks(kind: type) -> None:
    ids, offsets = uniform(50, 60)
    one, again, other = (draw(kind(), ids, offsets, seed) for seed in (1, 1, 2))
    assert (
        (one.ids == again.ids).all() and (one.positions == again.positions).all() and not (one.ids == other.ids).all()
    )


def test_a_span_is_replaced_as_one() -> None:
    """Sequences of one word of six pieces: [MASK], random entries or kept ids are drawn for all six at once."""
    word, n = [6] + [FIRST_CONTINUATION] * 5, 20_000
    ids, offsets = flat([(word, [])] * n)
    masked = draw(SpanMasking(share=1.0), ids, offsets)
    now = masked.ids[masked.positions].reshape(n, 6)
    is_mask, is_label = (now == MASK).sum(axis=1), (now == word).sum(axis=1)
    assert set(is_mask) == {0, 6}
    assert abs((is_mask == 6).mean() - 0.8) < 0.012 and abs((is_label == 6).mean() - 0.1) < 0.009
    random = now[(is_mask == 0) & (is_label < 6)]
    assert (random != random[:, :1]).any(axis=1).mean() > 0.99 and set(random.ravel()) == set(VOCABULARY.ordinary_ids)
    apart = draw(WholeWordMasking(share=1.0), ids, offsets)
    assert len(set((apart.ids[apart.positions].reshape(n, 6) == MASK).sum(axis=1))) > 3


def runs_masked(settings: TokenMasking) -> np.ndarray:
    """Count masked neighbours in four long sequences of single-piece words, so few that spans hardly ever meet."""
    masked = draw(settings, *flat([([6] * 400_000, [])] * 4))
    ends = np.append(np.flatnonzero(np.diff(masked.positions) > 1), len(masked.positions) - 1)
    return np.diff(ends, prepend=-1)


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        (SpanMasking(share=0.004), [0.8**k for k in range(10)]),
        (SpanMasking(share=0.002, stop_probability=0.5, longest=4), [8, 4, 2, 1]),
        (NgramMasking(share=0.002), [6, 3, 2]),
        (NgramMasking(share=0.002, longest=2), [2, 1]),
    ],
)
def test_spans_have_the_lengths_of_the_papers(settings: TokenMasking, weights: list[float]) -> None:
    """Geometric up to ten words, 3.8 on average (Joshi et al. 2020, 3.1); 1/n up to three (Lan et al. 2020, 4.2)."""
    lengths = runs_masked(settings)
    assert (lengths > len(weights)).mean() < 0.03
    lengths = lengths[lengths <= len(weights)]
    expected = np.array(weights) / sum(weights) * len(lengths)
    assert len(lengths) > 1_500 and chisquare(np.bincount(lengths)[1:], expected).pvalue > 1e-3


def test_a_span_has_3_8_words_on_average() -> None:
    assert runs_masked(SpanMasking(share=0.004)).mean() == pytest.approx(3.8, abs=0.2)
