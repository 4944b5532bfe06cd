"""Pairs of texts for contrastive training: two crops, adjacent paragraphs, or a title and a paragraph of one document;
or given pairs.

All arguments are as in `Pairing` (pairs.py), with lines in place of sentences. Shapes: L lines, D documents,
P paragraphs, N pairs.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.config.data import AdjacentParagraphs, GivenPairs, TitleParagraph, TwoCrops
from pipeline.text.chunks import sentence_reaching
from pipeline.text.sequences import (
    Sequences,
    follow_chain,
    offsets_of_counts,
    pairs_of_segments,
    without_empty_sentences,
)
from pipeline.text.template import ONE_SEPARATOR, SPECIALS_OF_ONE, Template

SHORTEST_CROP, LONGEST_CROP = 0.1, 0.5
"""A crop has between 10% and 50% of the tokens of its stretch (facebookresearch/contriever: ratio_min, ratio_max)."""


def two_crops(
    settings: TwoCrops,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
    template: Template = ONE_SEPARATOR,
) -> Sequences:
    """Draw two crops from each stretch of a document, independently of each other; crops may overlap.

    A document is split into stretches of equal length. A stretch has at most twice as many tokens as fit in a sequence.
    Crops begin and end at tokens, not at words or sentences, as in Contriever (Izacard et al. 2022).
    """
    maximum = maximum_length - SPECIALS_OF_ONE
    bounds = sentence_offsets[document_offsets]
    stretches = -(-np.diff(bounds) // (2 * maximum))
    document = np.repeat(np.arange(len(stretches)), stretches)
    part = np.arange(len(document)) - np.repeat(np.cumsum(stretches) - stretches, stretches)
    start, size = bounds[document], np.diff(bounds)[document]
    begins, ends = start + size * part // stretches[document], start + size * (part + 1) // stretches[document]
    crops = [_crops(begins, ends, maximum, rng) for _ in range(2)]
    return pairs_of_segments(crops[0], crops[1], (document, document), two_texts=True)


def _crops(
    begins: np.ndarray, ends: np.ndarray, maximum: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends of one random crop of at most `maximum` tokens per stretch, int64 (N,)."""
    size = ends - begins
    shares = rng.uniform(SHORTEST_CROP, LONGEST_CROP, len(size))
    length = np.clip(np.rint(shares * size).astype(np.int64), 1, maximum)
    starts = begins + rng.integers(0, size - length + 1)
    return starts, starts + length


@dataclass(frozen=True, kw_only=True)
class Paragraphs:
    """P paragraphs of a window, in order. A document without tokens has no paragraphs."""

    starts: np.ndarray  # int64 (P,), token offsets in the window's flat ids
    ends: np.ndarray  # int64 (P,)
    documents: np.ndarray  # int64 (P,), index in the window


def join_lines(line_offsets: np.ndarray, document_offsets: np.ndarray, shortest: int) -> Paragraphs:
    """Join consecutive lines of a document into paragraphs of at least `shortest` tokens.

    Lines that remain at the end of a document belong to its last paragraph. A document with fewer tokens is one
    paragraph.
    """
    offsets, bounds = without_empty_sentences(line_offsets, document_offsets)
    owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    following = sentence_reaching(offsets, offsets[:-1] + shortest, bounds[owner + 1])
    first = follow_chain(following)
    starts, ends, documents = offsets[first], offsets[following[first]], owner[first]
    # Only the last paragraph of a document can be too short. It is joined with the paragraph before it.
    rest = np.flatnonzero((ends - starts < shortest)[1:] & (documents[1:] == documents[:-1])) + 1
    ends[rest - 1] = ends[rest]
    return Paragraphs(starts=np.delete(starts, rest), ends=np.delete(ends, rest), documents=np.delete(documents, rest))


def adjacent_paragraphs(
    settings: AdjacentParagraphs,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
    template: Template = ONE_SEPARATOR,
) -> Sequences:
    """Pair each document's paragraphs: the first with the second, the third with the fourth, and so on.

    In documents of three paragraphs or more, pairing begins at the first or the second paragraph, by a fair coin.
    Paragraphs are truncated to the maximum length.
    """
    paragraphs = join_lines(sentence_offsets, document_offsets, settings.shortest)
    counts = np.bincount(paragraphs.documents, minlength=len(document_offsets) - 1)
    skipped = (counts > 2) & (rng.random(len(counts)) < 0.5)
    number = np.arange(len(paragraphs.documents)) - (np.cumsum(counts) - counts)[paragraphs.documents]
    number -= skipped[paragraphs.documents]
    first = np.flatnonzero((number >= 0) & (number % 2 == 0) & (number + 1 < (counts - skipped)[paragraphs.documents]))
    a, b = (_truncated(paragraphs, chosen, maximum_length) for chosen in (first, first + 1))
    documents = paragraphs.documents[first]
    return pairs_of_segments(a, b, (documents, documents), two_texts=True)


def title_paragraphs(
    settings: TitleParagraph,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
    template: Template = ONE_SEPARATOR,
) -> Sequences:
    """Pair each paragraph of a document with the document's title, which is its first line.

    A document without a title or without text gives no pair. Titles and paragraphs are truncated to the maximum length.
    """
    # Here, a title is a document of its own: title 2 d and text 2 d + 1 belong to document d.
    bounds = np.sort(np.concatenate((document_offsets, document_offsets[:-1] + 1)))
    paragraphs = join_lines(sentence_offsets, bounds, settings.shortest)
    titles, texts = (np.flatnonzero(paragraphs.documents % 2 == number) for number in (0, 1))
    title_of = np.full(len(document_offsets) - 1, -1)
    title_of[paragraphs.documents[titles] // 2] = titles
    documents = paragraphs.documents[texts] // 2
    with_title = title_of[documents] >= 0
    documents, texts = documents[with_title], texts[with_title]
    a, b = (_truncated(paragraphs, chosen, maximum_length) for chosen in (title_of[documents], texts))
    return pairs_of_segments(a, b, (documents, documents), two_texts=True)


def given_pairs(
    settings: GivenPairs,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    parents: np.ndarray,
    maximum_length: int,
    rng: np.random.Generator,
    template: Template = ONE_SEPARATOR,
) -> Sequences:
    """Return the two texts of each document and its hard negatives: its first two lines, and the lines after them.

    Of more than settings.negatives negatives, some are drawn. A document whose first or second text has no tokens gives
    no row, and such a negative is left out. Longer texts are truncated to the maximum length.
    """
    counts, lengths = np.diff(document_offsets), np.diff(sentence_offsets)
    owner = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(owner)) - document_offsets[owner]
    usable = np.bincount(owner, (number < 2) & (lengths > 0), len(counts)) == 2
    negatives = np.flatnonzero((number >= 2) & (lengths > 0))
    drawn = negatives[np.lexsort((rng.random(len(negatives)), owner[negatives]))]
    of_owner = np.bincount(owner[drawn], minlength=len(counts))
    rank = np.arange(len(drawn)) - offsets_of_counts(of_owner)[owner[drawn]]
    lines = np.sort(np.concatenate((np.flatnonzero(number < 2), drawn[rank < settings.negatives])))
    lines = lines[usable[owner[lines]]]
    starts = sentence_offsets[lines]
    documents = np.flatnonzero(usable).astype(np.int32)
    return Sequences(
        starts=starts,
        ends=np.minimum(sentence_offsets[lines + 1], starts + maximum_length - SPECIALS_OF_ONE),
        offsets=offsets_of_counts(np.bincount(owner[lines], minlength=len(counts))[usable]),
        document_a=documents,
        document_b=documents,
        two_texts=True,
        negatives=settings.negatives,
    )


def _truncated(paragraphs: Paragraphs, chosen: np.ndarray, maximum_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends of the paragraphs with the indices `chosen`, truncated to the maximum length."""
    starts = paragraphs.starts[chosen]
    return starts, np.minimum(paragraphs.ends[chosen], starts + maximum_length - SPECIALS_OF_ONE)
