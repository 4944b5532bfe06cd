"""Table of pairings: functions that turn a window's sentences into examples."""

from collections.abc import Callable

from pipeline.config.data import (
    AdjacentParagraphs,
    FullSentences,
    GivenPairs,
    NextSentence,
    Sampling,
    SentenceOrder,
    Sentences,
    SingleSegment,
    TitleParagraph,
    TwoCrops,
)
from pipeline.text.contiguous import full_sentences, single_segments
from pipeline.text.next_sentence import next_sentence_pairs
from pipeline.text.sentence_order import sentence_order_pairs
from pipeline.text.sequences import Sequences
from pipeline.text.single_texts import sentence_texts
from pipeline.text.two_texts import adjacent_paragraphs, given_pairs, title_paragraphs, two_crops

Pairing = Callable[..., Sequences]
"""Function of (settings, sentence_offsets, document_offsets, parents, maximum_length, rng, template).

It returns the examples of one window. `sentence_offsets` (S + 1,) are the token offsets of the sentences in the
window's flat ids. `document_offsets` (D + 1,) are the offsets of the documents, counted in sentences. `parents` (D,)
holds equal numbers for documents of one parent. Empty sentences are skipped. Pairings of two texts get lines instead of
sentences (`window_lines` in examples.py). No sequence is longer than `maximum_length` tokens, special tokens included;
in a row of two texts, this limit holds for each text. The same arguments, including the generator's state, give the
same sequences.
"""

PAIRINGS: dict[type, Pairing] = {
    NextSentence: next_sentence_pairs,
    SentenceOrder: sentence_order_pairs,
    FullSentences: full_sentences,
    SingleSegment: single_segments,
    TwoCrops: two_crops,
    AdjacentParagraphs: adjacent_paragraphs,
    TitleParagraph: title_paragraphs,
    GivenPairs: given_pairs,
    Sentences: sentence_texts,
}
NEEDED_BY_TEXTS: dict[type, str] = {
    TwoCrops: "documents with words",
    AdjacentParagraphs: "documents of two paragraphs (lines) with sampling.pairs.shortest ({pairs.shortest}) tokens "
    "each, or sampling.pairs:two-crops",
    TitleParagraph: "documents with a title and a paragraph (line), or sampling.pairs:two-crops",
    GivenPairs: "pairs of texts with words",
    Sentences: "sentences of at most sampling.maximum_length ({maximum_length}) - 2 tokens",
}
"""Kind of sampling.pairs -> words for the documents that this kind needs."""


def needed_documents(sampling: Sampling) -> str:
    """Return words for the documents that are needed to make examples."""
    needed = NEEDED_BY_TEXTS.get(type(sampling.pairs), "documents of several sentences")
    return needed.format(pairs=sampling.pairs, maximum_length=sampling.maximum_length)
