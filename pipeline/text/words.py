"""Find the words of flat sequences, and draw random words and spans.

T tokens of N sequences, W words; a word is the unit of masking, which may be a single piece.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Words:
    """Words in the order of the text, without special tokens."""

    starts: np.ndarray  # int64 (W,), token index of each word's first piece
    sizes: np.ndarray  # int64 (W,), number of its pieces
    bounds: np.ndarray  # int64 (N + 1,), offsets of each sequence's words

    def positions(self, words: np.ndarray) -> np.ndarray:
        """Return the token indices of the pieces of these words (sorted), sorted."""
        sizes = self.sizes[words]
        ends = np.cumsum(sizes)
        return np.arange(sizes.sum()) + np.repeat(self.starts[words] - ends + sizes, sizes)


def single_pieces(ids: np.ndarray, offsets: np.ndarray, vocabulary: Vocabulary) -> Words:
    """Return every piece as a word; `ids` (T,) and `offsets` (N + 1,) as in `mask`."""
    starts = np.flatnonzero(_is_text(ids, vocabulary))
    return Words(starts=starts, sizes=np.ones_like(starts), bounds=np.searchsorted(starts, offsets))


def whole_words(
    ids: np.ndarray, offsets: np.ndarray, vocabulary: Vocabulary, begins: np.ndarray | None = None
) -> Words:
    """Group each piece with the pieces that continue its word; a word cut by the segment's edge is a word, too.

    `begins`, bool (T,), marks tokens that begin a word whatever their piece.
    """
    text = _is_text(ids, vocabulary)
    tied = text[1:] & text[:-1] & vocabulary.continuation[ids[1:]]  # to the piece before
    if begins is not None:
        tied &= ~begins[1:]
    begins, ends = text.copy(), text
    begins[1:] &= ~tied
    ends[:-1] &= ~tied
    starts = np.flatnonzero(begins)
    return Words(starts=starts, sizes=np.flatnonzero(ends) + 1 - starts, bounds=np.searchsorted(starts, offsets))


def _is_text(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Whether each token may be masked, bool (T,): all but [CLS], [SEP] and [PAD]."""
    return (ids != vocabulary.cls_id) & (ids != vocabulary.sep_id) & (ids != vocabulary.pad_id)


def _random_order(words: Words, room: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each sequence's words in random order, one per sequence at a time: (sequences (A,), a word of each).

    A sequence drops out when its words are used up or when its `room` (N,), which the caller reduces, is 0.
    """
    order, left = np.arange(len(words.starts)), np.diff(words.bounds)
    active = np.flatnonzero((room > 0) & (left > 0))
    while len(active):  # a step of the Fisher-Yates shuffle
        first = words.bounds[1:][active] - left[active]
        chosen = first + (rng.random(len(active)) * left[active]).astype(np.int64)
        drawn = order[chosen]
        order[chosen] = order[first]
        yield active, drawn
        left[active] -= 1
        active = active[(room[active] > 0) & (left[active] > 0)]


def draw_words(words: Words, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw words in random order until a sequence has `counts` (N,) pieces; words that do not fit are skipped.

    Bool (W,).
    """
    taken, room = np.zeros(len(words.starts), bool), counts.copy()
    for sequence, word in _random_order(words, room, rng):
        size = words.sizes[word]
        fits = size <= room[sequence]
        taken[word] = fits
        room[sequence] -= size * fits
    return taken


def draw_spans(
    words: Words, counts: np.ndarray, shares: np.ndarray, rng: np.random.Generator, *, over_masked: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw spans of words until a sequence has `counts` (N,) pieces.

    Returns (word is taken, word is in the same span as the word before), both bool (W,).

    In random order, each word begins a span of k words with probability shares[k - 1]. A span ends with its segment,
    and is truncated to the words that still fit into the count. It is skipped if no word fits, or if its first word is
    already taken. If a later word is taken, it is skipped too, unless `over_masked`: then it continues over that word
    at no cost, and the two spans become one.
    """
    reach, total, padding = np.arange(len(shares)), len(words.starts), np.zeros(len(shares), np.int64)
    sizes, run, bounds = np.append(words.sizes, padding), np.append(_runs(words), padding - 1), np.cumsum(shares)[:-1]
    taken, tied, room = np.zeros(len(sizes), bool), np.zeros(len(sizes), bool), counts.copy()
    for sequence, start in _random_order(words, room, rng):
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


def _runs(words: Words) -> np.ndarray:
    """Return a number per word that is equal for words with nothing between them, int64 (W,)."""
    return words.starts - np.cumsum(words.sizes) + words.sizes  # special tokens before the word
