"""Which tokens of a sequence are masked, and by what.

T tokens of N sequences, C tokens that may be masked, M that are.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.config import TokenMasking, WholeWordMasking
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Flat sequences with their masks applied."""

    ids: np.ndarray  # int32 (T,), masks applied
    positions: np.ndarray  # int64 (M,), rising places in ids
    labels: np.ndarray  # int32 (M,), the ids that stood there
    offsets: np.ndarray  # int64 (N + 1,), where each sequence's positions begin, and the last's end


def mask(settings: TokenMasking, ids: np.ndarray, offsets: np.ndarray, vocabulary: Vocabulary, rng: np.random.Generator) -> Masked:
    """Mask a share of each sequence; `ids` (T,) int32 stay as they are, `offsets` (N + 1,) int64 bound the sequences.

    The count is max(1, round(share * length)), the length being that of the whole sequence as in google-research/bert, or all
    candidates where there are fewer. [CLS], [SEP] and [PAD] are never masked. Source: Devlin et al. 2019, 3.1 and A.1.
    """
    lengths = np.diff(offsets)
    candidates = np.flatnonzero((ids != vocabulary.cls_id) & (ids != vocabulary.sep_id) & (ids != vocabulary.pad_id))
    owner = np.repeat(np.arange(len(lengths)), lengths)[candidates]
    counts = np.maximum(1, np.rint(settings.share * lengths)).astype(np.int64)
    taken = MASKINGS[type(settings)](ids, candidates, owner, counts, vocabulary, rng)
    positions = candidates[taken]
    labels = ids[positions]
    masked = ids.copy()
    masked[positions] = replacements(settings, labels, vocabulary, rng)
    per_sequence = np.bincount(owner[taken], minlength=len(lengths))
    return Masked(ids=masked, positions=positions, labels=labels, offsets=np.concatenate(([0], np.cumsum(per_sequence))).astype(np.int64))


def replacements(settings: TokenMasking, labels: np.ndarray, vocabulary: Vocabulary, rng: np.random.Generator) -> np.ndarray:
    """What stands at the masked positions, int32 (M,): [MASK], a random ordinary entry, or the label itself."""
    kind = rng.random(len(labels))
    random_ids = vocabulary.ordinary_ids[rng.integers(0, len(vocabulary.ordinary_ids), len(labels))]
    ids = np.where(kind < settings.mask_share + settings.random_share, random_ids, labels)
    return np.where(kind < settings.mask_share, np.int32(vocabulary.mask_id), ids)


def shuffled(owner: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An order of things that puts those of one sequence in random order; `owner`, the sequence of each, rises and stays as it is."""
    return np.argsort(owner + rng.random(len(owner)), kind="stable")  # stable: the same order on every processor


def ranks(owner: np.ndarray) -> np.ndarray:
    """Place of each thing in its sequence; `owner` rises."""
    things = np.bincount(owner)
    return np.arange(len(owner)) - (np.cumsum(things) - things)[owner]


def draw_tokens(
    ids: np.ndarray, candidates: np.ndarray, owner: np.ndarray, counts: np.ndarray, vocabulary: Vocabulary, rng: np.random.Generator
) -> np.ndarray:
    """Which candidates (C,) are masked, bool: of each sequence the first `counts` (N,) in random order.

    `candidates` are places in `ids` (T,), `owner` (C,) their sequences.
    """
    row_lengths = np.bincount(owner, minlength=len(counts))
    width = max(1, row_lengths.max(initial=0))
    place = np.arange(width)
    inside = place < row_lengths[:, None]
    # Sorting padded rows is three times as fast as an argsort of all tokens. With its place in it no key is in a row twice.
    keys = np.full(inside.shape, np.iinfo(np.int64).max)
    keys[inside] = rng.integers(0, 2**62 // width, len(owner)) * width + np.broadcast_to(place, inside.shape)[inside]
    last = np.clip(counts, 1, np.maximum(row_lengths, 1)) - 1
    bound = np.sort(keys, axis=1)[np.arange(len(counts)), last]
    return (keys <= bound[:, None])[inside]


def draw_words(
    ids: np.ndarray, candidates: np.ndarray, owner: np.ndarray, counts: np.ndarray, vocabulary: Vocabulary, rng: np.random.Generator
) -> np.ndarray:
    """Which candidates (C,) are masked, bool: whole words, taken in random order as long as they fit into `counts` (N,).

    A word is a piece and the "##" pieces after it; what is left of a word that a segment was cut in is a word. A word that would exceed
    the count is passed over, so a sequence of long words only may have fewer masks than `counts`, or none, as in
    google-research/bert (which also joins "##" pieces at the start of B to the last word of A; here they stay apart).
    """
    follows = np.diff(candidates, prepend=-2) == 1
    first = np.flatnonzero(~(vocabulary.continuation[ids[candidates]] & follows))
    sizes = np.diff(np.append(first, len(candidates)))
    order = shuffled(owner[first], rng)
    taken = np.zeros(len(first), bool)
    taken[order] = fitting(sizes[order], owner[first], counts)
    return np.repeat(taken, sizes)


def fitting(sizes: np.ndarray, owner: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Which words (W,) are taken when, in their order, each is taken that still fits; `owner` (W,), the sequence of each, rises.

    The i-th words of all sequences are decided together: as many rounds as the longest sequence has words.
    """
    rank = ranks(owner)
    by_rank = np.zeros((rank.max(initial=-1) + 1, len(counts)), np.int64)
    by_rank[rank, owner] = sizes
    room = counts.copy()
    for words in by_rank:
        words[words > room] = 0
        room -= words
    return by_rank[rank, owner] > 0


Draw = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Vocabulary, np.random.Generator], np.ndarray]
MASKINGS: dict[type, Draw] = {TokenMasking: draw_tokens, WholeWordMasking: draw_words}
