"""Table of pairings, the functions that turn a window's sentences into examples."""

from collections.abc import Callable

from pipeline.config.data import FullSentences, NextSentence, SentenceOrder, SingleSegment
from pipeline.text.contiguous import full_sentences, single_segments
from pipeline.text.next_sentence import next_sentence_pairs
from pipeline.text.sentence_order import sentence_order_pairs
from pipeline.text.sequences import Sequences

Pairing = Callable[..., Sequences]
"""Takes (settings, sentence_offsets, document_offsets, parents, maximum_length, rng, template).

`sentence_offsets` (S + 1,) are token offsets in the window's flat ids, `document_offsets` (D + 1,) are sentence
indices, `parents` (D,) are equal for documents of one parent. Empty sentences are skipped. With special tokens, no
sequence is longer than `maximum_length` tokens. The same arguments, including the generator's state, give the same
sequences.
"""

PAIRINGS: dict[type, Pairing] = {
    NextSentence: next_sentence_pairs,
    SentenceOrder: sentence_order_pairs,
    FullSentences: full_sentences,
    SingleSegment: single_segments,
}
