"""The words of flat sequences, and random spans of them.

T tokens of N sequences, W words; a word is what is masked as a whole, be it a single piece.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Words:
    """Words in the order of the text; none has a special token in it."""

    starts: np.ndarray  # int64 (W,), token place of each word's first piece
    sizes: np.ndarray  # int64 (W,), its pieces
    bounds: np.ndarray  # int64 (N + 1,), which words each sequence begins with, and the last's end

    def positions(self, words: np.ndarray) -> np.ndarray:
        """Token places of the pieces of the words (int, rising), rising."""
        sizes = self.sizes[words]
        ends = np.cumsum(sizes)
        return np.arange(sizes.sum()) + np.repeat(self.starts[words] - ends + sizes, sizes)


def single_pieces(ids: np.ndarray, offsets: np.ndarray, vocabulary: Vocabulary) -> Words:
    """Every piece as a word of its own; `ids` (T,) and `offsets` (N + 1,) as in `mask`."""
    starts = np.flatnonzero(is_text(ids, vocabulary))
    return Words(starts=starts, sizes=np.ones_like(starts), bounds=np.searchsorted(starts, offsets))


def whole_words(ids: np.ndarray, offsets: np.ndarray, vocabulary: Vocabulary) -> Words:
    """A piece and those after it that the vocabulary says continue a word; what is left of a word that a segment was cut in is a word."""
    text = is_text(ids, vocabulary)
    tied = text[1:] & text[:-1] & vocabulary.continuation[ids[1:]]  # to the piece before
    begins, ends = text.copy(), text
    begins[1:] &= ~tied
    ends[:-1] &= ~tied
    starts = np.flatnonzero(begins)
    return Words(starts=starts, sizes=np.flatnonzero(ends) + 1 - starts, bounds=np.searchsorted(starts, offsets))


def is_text(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """What may be masked, bool (T,): all but [CLS], [SEP] and [PAD]."""
    return (ids != vocabulary.cls_id) & (ids != vocabulary.sep_id) & (ids != vocabulary.pad_id)


def random_order(words: Words, room: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every sequence's words in random order, the next of all sequences at once: (sequences (A,), one word of each).

    A sequence drops out when its words are used up, or its `room` (N,), from which the caller takes away, is 0.
    """
    order, left = np.arange(len(words.starts)), np.diff(words.bounds)
    active = np.flatnonzero((room > 0) & (left > 0))
    while len(active):  # a step of the Fisher-Yates shuffle
        first = words.bounds[1:][active] - left[active]
        place = first + (rng.random(len(active)) * left[active]).astype(np.int64)
        drawn = order[place]
        order[place] = order[first]
        yield active, drawn
        left[active] -= 1
        active = active[(room[active] > 0) & (left[active] > 0)]


def draw_words(words: Words, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Which words are taken, bool (W,): in random order each that fits, until a sequence has `counts` (N,) pieces; others are passed over."""
    taken, room = np.zeros(len(words.starts), bool), counts.copy()
    for sequence, word in random_order(words, room, rng):
        size = words.sizes[word]
        fits = size <= room[sequence]
        taken[word] = fits
        room[sequence] -= size * fits
    return taken


def draw_spans(
    words: Words, counts: np.ndarray, shares: np.ndarray, rng: np.random.Generator, *, over_masked: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Spans of words until a sequence has `counts` (N,) pieces: (word is taken, word is in one span with the word before), bool (W,).

    The words in random order each begin a span of k words with the probability shares[k - 1]. It ends early with its segment, and is
    trimmed to the words that still fit into the count. A span of which not one word fits, or that begins with a word taken before, is passed
    over. So is one that has such a word farther on, unless `over_masked`: then it goes on over it, at no cost, and the two spans are one.
    """
    reach, total, padding = np.arange(len(shares)), len(words.starts), np.zeros(len(shares), np.int64)
    sizes, run, bounds = np.append(words.sizes, padding), np.append(runs(words), padding - 1), np.cumsum(shares)[:-1]
    taken, tied, room = np.zeros(len(sizes), bool), np.zeros(len(sizes), bool), counts.copy()
    for sequence, start in random_order(words, room, rng):
        length = 1 + np.searchsorted(bounds, rng.random(len(start)), side="right")
        span = start[:, None] + reach
        inside = (reach < length[:, None]) & (run[span] == run[start][:, None])
        old = taken[span]
        cost = np.cumsum(np.where(inside & ~old if over_masked else inside, sizes[span], 0), axis=1)
        fits = inside & (cost <= room[sequence, None])
        fits &= ~(old[:, :1] if over_masked else (old & fits).any(axis=1, keepdims=True))
        taken[span[fits]] = True
        tied[span[:, 1:][fits[:, 1:]]] = True
        room[sequence] -= np.max(cost * fits, axis=1)
    return taken[:total], tied[:total]


def runs(words: Words) -> np.ndarray:
    """A number for each word that words share when nothing stands between them, int64 (W,)."""
    return words.starts - np.cumsum(words.sizes) + words.sizes  # special tokens before the word
