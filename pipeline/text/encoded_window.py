"""An encoded window, and the sequences that are sampled from it, as NumPy arrays.

Shapes: N sequences, T tokens and R ranges of these, M masked positions.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.config.data import Sampling
from pipeline.text.masking import MaskedIds
from pipeline.text.pairs import PAIRINGS
from pipeline.text.randomness import generator
from pipeline.text.sequences import Sequences
from pipeline.text.template import ONE_SEPARATOR, Template
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class EncodedWindow:
    """The sentences of a window as ids: T tokens of S sentences of D documents."""

    tokens: np.ndarray
    """int32 (T,): the ids of all sentences, without special tokens."""
    sentence_offsets: np.ndarray
    """int64 (S + 1,): offsets of the sentences in the tokens."""
    document_offsets: np.ndarray
    """int64 (D + 1,): offsets of the documents, counted in sentences."""
    parents: np.ndarray
    """int32 (D,): equal numbers for documents of one parent."""


def first_lengths(sequences: Sequences, offsets: np.ndarray, template: Template) -> np.ndarray:
    """Return the tokens of each sequence up to and including the [SEP] of its first segment, int64 (N,).

    `offsets` (N + 1,) are those of the sequences.
    """
    first = sequences.offsets[:-1]
    lengths = sequences.ends[first] - sequences.starts[first]
    if sequences.two_texts:
        return ONE_SEPARATOR.first_length(lengths)
    return template.first_length(lengths) if sequences.paired else np.diff(offsets)


def positions_in_sequence(masked: MaskedIds, offsets: np.ndarray) -> np.ndarray:
    """Return the masked positions as indices into their own sequences, int64 (M,); `offsets` as in `first_lengths`."""
    return masked.positions - np.repeat(offsets[:-1], np.diff(masked.offsets))


def sequences_of(
    encoded: EncodedWindow,
    vocabulary: Vocabulary,
    sampling: Sampling,
    room: int,
    seed: int,
    copy: int,
    window: int,
    purpose: str,
) -> Sequences:
    """Return the sequences of a window in random order, each with at most `room` tokens and special tokens."""
    sequences = PAIRINGS[type(sampling.pairs)](
        sampling.pairs,
        encoded.sentence_offsets,
        encoded.document_offsets,
        encoded.parents,
        room,
        generator(seed, copy, window, f"pairs{purpose}"),
        vocabulary.template,
    )
    return sequences.take(generator(seed, copy, window, f"rows{purpose}").permutation(len(sequences)))


def assemble(tokens: np.ndarray, sequences: Sequences, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate N sequences: each is [CLS] and its ranges, with a [SEP] after each range.

    In a pair, the vocabulary's template gives the number of [SEP] after segment A. `tokens` are the window's flat ids,
    int32. Return the ids, int32 (T,), and the offsets of the sequences, int64 (N + 1,).
    """
    ids, offsets, ends = _gather(tokens, sequences, vocabulary.template)
    ids[offsets[:-1]] = vocabulary.cls_id
    ids[ends - 1] = vocabulary.sep_id
    if sequences.paired:
        for separator in range(1, vocabulary.template.pair_separators):
            ids[ends[sequences.offsets[:-1]] - 1 - separator] = vocabulary.sep_id
    return ids, offsets


def sentence_begins(sentence_offsets: np.ndarray, sequences: Sequences, vocabulary: Vocabulary) -> np.ndarray | None:
    """Return whether a sentence begins at each token of the sequences, bool (T,).

    Only byte-level BPE needs this array: the first piece of a paragraph has no space before it, so the piece looks like
    the continuation of a word. For other vocabularies, return None instead of the array. The values at special
    tokens are arbitrary.
    """
    if not vocabulary.keeps_spaces:
        return None
    begins = np.zeros(sentence_offsets[-1], bool)
    begins[sentence_offsets[sentence_offsets < len(begins)]] = True
    return _gather(begins, sequences, vocabulary.template)[0]


def _gather(values: np.ndarray, sequences: Sequences, template: Template) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Copy `values`, one per token of the window, to the tokens of the sequences; special tokens get arbitrary values.

    Return the copy (T,), the offsets of the sequences, int64 (N + 1,), and for each range the index after its last
    separator, int64 (R,).
    """
    lengths = sequences.ends - sequences.starts + 1
    first = sequences.offsets[:-1]
    lengths[first] += template.pair_separators if sequences.paired else 1  # [CLS], extra [SEP]
    ends = np.cumsum(lengths)
    offsets = np.append(0, ends)[sequences.offsets]
    shift = sequences.starts - ends + lengths
    shift[first] -= 1
    # A special token copies a value next to its range. At the window's start or end, mode="clip" keeps indices valid.
    return np.take(values, np.arange(offsets[-1]) + np.repeat(shift, lengths), mode="clip"), offsets, ends
