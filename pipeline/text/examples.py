"""Make a window's examples: a pure function of documents, vocabulary, settings, seed, epoch and window."""

import numpy as np
import pyarrow as pa

from pipeline.config.data import Sampling
from pipeline.text.masking import Masked, mask
from pipeline.text.pairs import PAIRINGS
from pipeline.text.randomness import generator
from pipeline.text.schema import EXAMPLE
from pipeline.text.sentences import split_sentences
from pipeline.text.sequences import Sequences
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.wordpiece import WordPiece


def make_examples(
    documents: pa.Table, wordpiece: WordPiece, sampling: Sampling, *, seed: int, epoch: int, window: int
) -> pa.Table:
    """Make the examples (schema EXAMPLE) of a window's documents (schema DOCUMENT), in random order.

    The same arguments give the same bytes in every process. The table may be empty.
    """
    sentences, document_offsets = window_sentences(documents)
    tokens, sentence_offsets = wordpiece.encode(sentences)
    parents = documents["parent"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    sample = PAIRINGS[type(sampling.pairs)]
    rng = generator(seed, epoch, window, "pairs")
    sequences = sample(sampling.pairs, sentence_offsets, document_offsets, parents, sampling.maximum_length, rng)
    sequences = sequences.take(generator(seed, epoch, window, "rows").permutation(len(sequences)))
    ids, offsets = assemble(tokens, sequences, wordpiece.vocabulary)
    masked = mask(sampling.masking, ids, offsets, wordpiece.vocabulary, generator(seed, epoch, window, "masks"))
    return example_table(sequences, offsets, masked)


def window_sentences(documents: pa.Table) -> tuple[list[str], np.ndarray]:
    """Return all sentences of the documents and each document's offset into them, int64 (D + 1,)."""
    sentences: list[str] = []
    offsets = [0]
    columns = (documents[name].to_pylist() for name in ("text", "lines_are_sentences", "language"))
    for text, lines, language in zip(*columns):
        sentences += split_sentences(text, lines_are_sentences=lines, language=language)
        offsets.append(len(sentences))
    return sentences, np.array(offsets, np.int64)


def assemble(tokens: np.ndarray, sequences: Sequences, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate the sequences: [CLS], then each range with a [SEP].

    Return ids, int32 (T,), and offsets, int64 (N + 1,).
    """
    lengths = sequences.ends - sequences.starts + 1
    lengths[sequences.offsets[:-1]] += 1
    ends = np.cumsum(lengths)
    offsets = np.append(0, ends)[sequences.offsets]
    shift = sequences.starts - ends + lengths
    shift[sequences.offsets[:-1]] -= 1
    # The positions of the special tokens, just outside their ranges, are copied too and then overwritten.
    ids = np.take(tokens, np.arange(offsets[-1]) + np.repeat(shift, lengths), mode="clip")
    ids[offsets[:-1]] = vocabulary.cls_id
    ids[ends - 1] = vocabulary.sep_id
    return ids, offsets


def example_table(sequences: Sequences, offsets: np.ndarray, masked: Masked) -> pa.Table:
    """Build the Arrow table (schema EXAMPLE) without copying; `offsets` (N + 1,) bound the sequences."""
    in_sequence = masked.positions - np.repeat(offsets[:-1], np.diff(masked.offsets))
    first = sequences.offsets[:-1]
    first_length = sequences.ends[first] - sequences.starts[first] + 2 if sequences.paired else np.diff(offsets)
    no_label = pa.nulls(len(sequences), pa.bool_())
    columns = [
        _lists(offsets, masked.ids),
        pa.array(first_length.astype(np.int32)),
        _lists(masked.offsets, in_sequence),
        _lists(masked.offsets, masked.labels),
        no_label if sequences.not_next is None else pa.array(sequences.not_next),
        no_label if sequences.swapped is None else pa.array(sequences.swapped),
        pa.array(sequences.document_a),
        pa.array(sequences.document_b),
    ]
    return pa.Table.from_arrays(columns, schema=EXAMPLE)


def _lists(offsets: np.ndarray, values: np.ndarray) -> pa.ListArray:
    """Build a list<int32> array from `values` and `offsets`."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values.astype(np.int32, copy=False)))
