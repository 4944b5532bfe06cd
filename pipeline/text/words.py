"""Find the words of flat sequences, and draw random words and spans.

Shapes: T tokens of N sequences, W words. A word is the unit of masking; it may be a single piece.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Words:
    """Words in the order of the text, without special tokens."""

    starts: np.ndarray  # int64 (W,), token index of each word's first piece
    sizes: np.ndarray  # int64 (W,), number of pieces of each word
    bounds: np.ndarray  # int64 (N + 1,), sequence i has the words bounds[i] : bounds[i + 1]

    def positions(self, words: np.ndarray) -> np.ndarray:
        """Return the token indices of all pieces of `words` (increasing word indices), in increasing order, int64."""
        sizes = self.sizes[words]
        ends = np.cumsum(sizes)
        return np.arange(sizes.sum()) + np.repeat(self.starts[words] - ends + sizes, sizes)


def single_pieces(ids: np.ndarray, offsets: np.ndarray, vocabulary: Vocabulary) -> Words:
    """Return every piece as a word of its own; `ids` (T,) and `offsets` (N + 1,) are as in masking.mask."""
    starts = np.flatnonzero(_is_text(ids, vocabulary))
    return Words(starts=starts, sizes=np.ones_like(starts), bounds=np.searchsorted(starts, offsets))


def whole_words(
    ids: np.ndarray, offsets: np.ndarray, vocabulary: Vocabulary, begins: np.ndarray | None = None
) -> Words:
    """Group each piece with the pieces that continue its word. A word cut by the edge of a segment is a word, too.
    An added token is one word.

    `begins`, bool (T,), marks tokens that begin a word even if their piece looks like a continuation. None: the pieces
    alone decide.
    """
    text = _is_text(ids, vocabulary)
    tied = text[1:] & text[:-1] & vocabulary.continuation[ids[1:]]  # whether a piece belongs to the word before it
    if vocabulary.added:
        tied &= ~vocabulary.whole[ids[:-1]]
    if begins is not None:
        tied &= ~begins[1:]
    begins, ends = text.copy(), text
    begins[1:] &= ~tied
    ends[:-1] &= ~tied
    starts = np.flatnonzero(begins)
    return Words(starts=starts, sizes=np.flatnonzero(ends) + 1 - starts, bounds=np.searchsorted(starts, offsets))


def _is_text(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """Return bool (T,): True for tokens that may be masked, False for [CLS], [SEP] and [PAD]."""
    return (ids != vocabulary.cls_id) & (ids != vocabulary.sep_id) & (ids != vocabulary.pad_id)


def _random_order(words: Words, room: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Draw the words of each sequence in random order.

    Yield (indices of the active sequences, index of one drawn word for each), both int64 (A,). A sequence is active
    while it has words left and its `room` (N,) is above 0. The caller reduces `room`.
    """
    order, left = np.arange(len(words.starts)), np.diff(words.bounds)
    active = np.flatnonzero((room > 0) & (left > 0))
    while len(active):  # one step of a Fisher-Yates shuffle per sequence
        first = words.bounds[1:][active] - left[active]
        chosen = first + (rng.random(len(active)) * left[active]).astype(np.int64)
        drawn = order[chosen]
        order[chosen] = order[first]
        yield active, drawn
        left[active] -= 1
        active = active[(room[active] > 0) & (left[active] > 0)]


def draw_words(words: Words, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw words in random order until each sequence has `counts` (N,) pieces.

    Return whether each word is drawn, bool (W,). A word is skipped if it has more pieces than its sequence still needs.
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
    """Draw spans of words until each sequence has `counts` (N,) pieces.

    Return two arrays bool (W,): which words are taken, and which words are in the same span as the word before them.

    Each word, in random order, begins a span of k words with probability shares[k - 1]. A span ends at the end of its
    segment, and is truncated to the words that still fit into the count. A span is skipped if its first word does not
    fit or is already taken. If a later word is already taken, the span is skipped too. With `over_masked`, the span
    continues over that word instead: words already taken do not count again, and the two spans become one.
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
    """Return the number of special tokens before each word, int64 (W,).

    Two words have the same number if there is no special token between them.
    """
    return words.starts - np.cumsum(words.sizes) + words.sizes
