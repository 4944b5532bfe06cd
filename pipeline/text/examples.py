"""Documents of a window to its examples: a pure function of the documents, vocabulary, settings, seed, epoch and window."""

import hashlib

import numpy as np
import pyarrow as pa

from pipeline.config import Sampling
from pipeline.text.masking import Masked, mask
from pipeline.text.pairs import PAIRINGS, Pairs
from pipeline.text.schema import EXAMPLE
from pipeline.text.sentences import split_sentences
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.wordpiece import WordPiece


def generator(seed: int, epoch: int, window: int, purpose: str) -> np.random.Generator:
    """The only source of randomness: NumPy's counter-based Philox, keyed by these and nothing else.

    All numbers are from 0 to 2^64 - 1. Each purpose has its own stream, so that one part drawing more or less leaves the others as they are.
    """
    number = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")
    key, counter = np.array([seed, number], np.uint64), np.array([0, 0, window, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def make_examples(documents: pa.Table, wordpiece: WordPiece, sampling: Sampling, *, seed: int, epoch: int, window: int) -> pa.Table:
    """The examples of a window's documents (schema DOCUMENT) in random order, with schema EXAMPLE.

    The same arguments give the same bytes in every process. The table may be empty.
    """
    sentences, document_offsets = window_sentences(documents)
    tokens, sentence_offsets = wordpiece.encode(sentences)
    parents = documents["parent"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    sample = PAIRINGS[type(sampling.pairs)]
    rng = generator(seed, epoch, window, "pairs")
    pairs = sample(sampling.pairs, sentence_offsets, document_offsets, parents, sampling.maximum_length, rng)
    pairs = pairs.take(generator(seed, epoch, window, "rows").permutation(len(pairs)))
    ids, offsets = assemble(tokens, pairs, wordpiece.vocabulary)
    masked = mask(sampling.masking, ids, offsets, wordpiece.vocabulary, generator(seed, epoch, window, "masks"))
    return example_table(pairs, offsets, masked)


def window_sentences(documents: pa.Table) -> tuple[list[str], np.ndarray]:
    """All sentences of the documents, and where each document's begin and the last's end, int64 (D + 1,)."""
    sentences: list[str] = []
    offsets = [0]
    for text, lines in zip(documents["text"].to_pylist(), documents["lines_are_sentences"].to_pylist()):
        sentences += split_sentences(text, lines_are_sentences=lines)
        offsets.append(len(sentences))
    return sentences, np.array(offsets, np.int64)


def assemble(tokens: np.ndarray, pairs: Pairs, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """The sequences [CLS] A [SEP] B [SEP] in one run, int32 (T,), and their bounds, int64 (N + 1,)."""
    cls_place, sep_place, one = np.full_like(pairs.a_start, len(tokens)), np.full_like(pairs.a_start, len(tokens) + 1), np.ones_like(pairs.a_start)
    starts = np.stack((cls_place, pairs.a_start, sep_place, pairs.b_start, sep_place), axis=1).ravel()
    lengths = np.stack((one, pairs.a_end - pairs.a_start, one, pairs.b_end - pairs.b_start, one), axis=1).ravel()
    ends = np.concatenate(([0], np.cumsum(lengths)))
    places = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)
    with_specials = np.append(tokens, np.array([vocabulary.cls_id, vocabulary.sep_id], np.int32))
    return with_specials[places], ends[::5]


def example_table(pairs: Pairs, offsets: np.ndarray, masked: Masked) -> pa.Table:
    """The Arrow table (schema EXAMPLE) over the same memory; `offsets` (N + 1,) bound the sequences."""
    in_sequence = masked.positions - np.repeat(offsets[:-1], np.diff(masked.offsets))
    columns = [
        lists(offsets, masked.ids),
        pa.array((pairs.a_end - pairs.a_start + 2).astype(np.int32)),
        lists(masked.offsets, in_sequence),
        lists(masked.offsets, masked.labels),
        pa.array(pairs.not_next),
        pa.array(pairs.document_a),
        pa.array(pairs.document_b),
    ]
    return pa.Table.from_arrays(columns, schema=EXAMPLE)


def lists(offsets: np.ndarray, values: np.ndarray) -> pa.ListArray:
    """A list<int32> array of the runs of `values` between `offsets`."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values.astype(np.int32, copy=False)))
