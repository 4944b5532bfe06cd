"""The ways in which the sentences of a window become examples: a table of them."""

from collections.abc import Callable

from pipeline.config.data import FullSentences, NextSentence, SentenceOrder, SingleSegment
from pipeline.text.contiguous import full_sentences, single_segments
from pipeline.text.next_sentence import next_sentence_pairs
from pipeline.text.sentence_order import sentence_order_pairs
from pipeline.text.sequences import Sequences

Pairing = Callable[..., Sequences]
"""Takes (settings, sentence_offsets, document_offsets, parents, maximum_length, rng).

`sentence_offsets` (S + 1,) are token places in the window's flat ids, `document_offsets` (D + 1,) are sentence places, `parents` (D,) are equal
for documents of one parent. Sentences without tokens are passed over. With its specials no sequence is longer than `maximum_length` tokens.
The same arguments, the generator's state among them, give the same sequences.
"""

PAIRINGS: dict[type, Pairing] = {
    NextSentence: next_sentence_pairs,
    SentenceOrder: sentence_order_pairs,
    FullSentences: full_sentences,
    SingleSegment: single_segments,
}
