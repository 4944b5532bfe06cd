"""Choose which tokens of a sequence are masked and what replaces them.

Shapes: T tokens of N sequences, M masked positions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.config.data import NgramMasking, SpanMasking, TokenMasking, WholeWordMasking
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.words import Words, draw_spans, draw_words, single_pieces, whole_words


@dataclass(frozen=True, kw_only=True)
class MaskedIds:
    """Flat sequences with their masks applied."""

    ids: np.ndarray  # int32 (T,), masks applied
    positions: np.ndarray  # int64 (M,), increasing indices into ids
    labels: np.ndarray  # int32 (M,), the original ids at these positions
    offsets: np.ndarray  # int64 (N + 1,), sequence i has positions[offsets[i] : offsets[i + 1]]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Positions chosen for masking."""

    positions: np.ndarray  # int64 (M,), increasing indices into ids
    spans: np.ndarray  # int64 (M,), index of each position's span: 0, 0, 1, …; one draw per span


def mask(
    settings: TokenMasking,
    ids: np.ndarray,
    offsets: np.ndarray,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    begins: np.ndarray | None = None,
) -> MaskedIds:
    """Mask a share of the tokens of each sequence.

    `ids`, int32 (T,), are not modified. `offsets`, int64 (N + 1,), are the offsets of the sequences; each sequence
    begins with [CLS]. `begins`, bool (T,), marks tokens that begin a word even if their piece looks like a
    continuation. If `begins` is None, the pieces alone decide where words begin.

    The number of masked positions is max(1, round(share * length)), as in google-research/bert. The length includes
    special tokens. Fewer positions are masked if too few candidates fit. [CLS], [SEP] and [PAD] are never masked.
    Source: Devlin et al. 2019, sections 3.1 and A.1.
    """
    counts = np.maximum(1, np.rint(settings.share * np.diff(offsets))).astype(np.int64)
    drawn = MASKINGS[type(settings)](settings, ids, offsets, counts, vocabulary, rng, begins)
    labels = ids[drawn.positions]
    masked = ids.copy()
    masked[drawn.positions] = _replacements(settings, labels, drawn.spans, vocabulary, rng)
    return MaskedIds(
        ids=masked, positions=drawn.positions, labels=labels, offsets=np.searchsorted(drawn.positions, offsets)
    )


def without_masks(ids: np.ndarray, offsets: np.ndarray) -> MaskedIds:
    """Return sequences without masked positions; arguments as in `mask`."""
    return MaskedIds(
        ids=ids, positions=np.zeros(0, np.int64), labels=np.zeros(0, np.int32), offsets=np.zeros(len(offsets), np.int64)
    )


def _replacements(
    settings: TokenMasking, labels: np.ndarray, spans: np.ndarray, vocabulary: Vocabulary, rng: np.random.Generator
) -> np.ndarray:
    """Return the new ids of the masked positions, int32 (M,): [MASK], random entries or the unchanged labels.

    One draw per span chooses one of the three for all positions of the span.
    """
    draws = rng.random(spans.max(initial=-1) + 1)[spans]
    random_ids = vocabulary.ordinary_ids[rng.integers(0, len(vocabulary.ordinary_ids), len(labels))]
    ids = np.where(draws < settings.mask_share + settings.random_share, random_ids, labels)
    return np.where(draws < settings.mask_share, np.int32(vocabulary.mask_id), ids)


def _mask_tokens(
    settings: TokenMasking,
    ids: np.ndarray,
    offsets: np.ndarray,
    counts: np.ndarray,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    begins: np.ndarray | None = None,
) -> Selection:
    """Select single pieces, regardless of words."""
    words = single_pieces(ids, offsets, vocabulary)
    return _separate_spans(words, draw_words(words, counts, rng))


def _mask_words(
    settings: WholeWordMasking,
    ids: np.ndarray,
    offsets: np.ndarray,
    counts: np.ndarray,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    begins: np.ndarray | None = None,
) -> Selection:
    """Select whole words, and skip words with more pieces than the count still allows.

    A sequence of long words may therefore get fewer masked positions, or none, as in google-research/bert. Unlike in
    google-research/bert, "##" pieces at the start of segment B do not join the last word of segment A.
    """
    words = whole_words(ids, offsets, vocabulary, begins)
    return _separate_spans(words, draw_words(words, counts, rng))


def _mask_ngrams(
    settings: NgramMasking,
    ids: np.ndarray,
    offsets: np.ndarray,
    counts: np.ndarray,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    begins: np.ndarray | None = None,
) -> Selection:
    """Select disjoint runs of n whole words; n is drawn from 1 to `longest` with probability proportional to 1/n.

    A run with more pieces than the count still allows is truncated, as in google-research/albert. Unlike in
    google-research/albert, a run never crosses a [SEP]. Source: Lan et al. 2020, section 4.2.
    """
    words = whole_words(ids, offsets, vocabulary, begins)
    weights = 1 / np.arange(1, settings.longest + 1)
    return _separate_spans(words, draw_spans(words, counts, weights / weights.sum(), rng, over_masked=False)[0])


def _mask_spans(
    settings: SpanMasking,
    ids: np.ndarray,
    offsets: np.ndarray,
    counts: np.ndarray,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    begins: np.ndarray | None = None,
) -> Selection:
    """Select spans of whole words; overlapping spans become one span.

    The number of words in a span follows a geometric distribution, restricted to 1 to `longest`. A span with more
    pieces than the count still allows loses whole words at its end. In facebookresearch/SpanBERT, such a span loses
    pieces, so its last word may be masked in part. Source: Joshi et al. 2020, section 3.1.
    """
    words = whole_words(ids, offsets, vocabulary, begins)
    weights = (1 - settings.stop_probability) ** np.arange(settings.longest)
    taken, tied = draw_spans(words, counts, weights / weights.sum(), rng, over_masked=True)
    chosen = np.flatnonzero(taken)
    return Selection(
        positions=words.positions(chosen), spans=np.repeat(np.cumsum(~tied[chosen]) - 1, words.sizes[chosen])
    )


def _separate_spans(words: Words, taken: np.ndarray) -> Selection:
    """Return all pieces of the taken words; each piece is a span of its own, so its replacement is drawn separately."""
    positions = words.positions(np.flatnonzero(taken))
    return Selection(positions=positions, spans=np.arange(len(positions)))


Draw = Callable[..., Selection]
"""Function of (settings, ids, offsets, counts, vocabulary, rng, begins) that returns a Selection.

`counts`, int64 (N,), are the maximum numbers of masked positions per sequence; the other arguments are as in `mask`.
"""

MASKINGS: dict[type, Draw] = {
    TokenMasking: _mask_tokens,
    WholeWordMasking: _mask_words,
    SpanMasking: _mask_spans,
    NgramMasking: _mask_ngrams,
}
