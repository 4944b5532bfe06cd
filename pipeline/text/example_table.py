"""Tables of examples and rows (schemas EXAMPLE and ROW).

They are made of encoded windows, so a machine that trains on a file of tokens needs no sentence splitter.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.config.data import Sampling
from pipeline.text.encoded_window import (
    EncodedWindow,
    assemble,
    first_lengths,
    positions_in_sequence,
    sentence_begins,
    sequences_of,
)
from pipeline.text.masking import MaskedIds, mask
from pipeline.text.randomness import generator
from pipeline.text.schema import EXAMPLE, ROW
from pipeline.text.sequences import Sequences
from pipeline.text.template import SPECIALS_OF_ONE, Template
from pipeline.text.vocabulary import Vocabulary


def masked_examples(
    encoded: EncodedWindow,
    vocabulary: Vocabulary,
    sampling: Sampling,
    *,
    seed: int,
    copy: int,
    window: int,
    purpose: str = "",
) -> pa.Table:
    """Make the masked examples (schema EXAMPLE) of a window, in random order.

    `sampling` must not make examples of two texts or with text. `copy` is that of the epoch
    (`Sampling.copy_of_epoch`). Each `purpose` has its own random numbers.
    """
    length = sampling.maximum_length
    sequences = sequences_of(encoded, vocabulary, sampling, length, seed, copy, window, purpose)
    ids, offsets = assemble(encoded.tokens, sequences, vocabulary)
    begins = sentence_begins(encoded.sentence_offsets, sequences, vocabulary)
    random = generator(seed, copy, window, f"masks{purpose}")
    masked = mask(sampling.masking, ids, offsets, vocabulary, random, begins)
    return example_table(sequences, offsets, masked, vocabulary.template)


def with_positions(examples: pa.Table, epoch: int, position: int) -> pa.Table:
    """Return the examples of a window as rows (schema ROW); `position` is the window's in the epoch's order."""
    rows = examples.num_rows
    columns = [array(np.full(rows, number, np.int64)) for number in (epoch, position, rows)]
    columns.insert(2, array(np.arange(rows, dtype=np.int64)))
    return pa.Table.from_arrays([*examples.columns, *columns], schema=ROW)


def example_table(
    sequences: Sequences,
    offsets: np.ndarray,
    masked: MaskedIds,
    template: Template,
    parents: np.ndarray | None = None,
    prompt_lengths: Sequence[int] = (),
    strings: list[str] | None = None,
) -> pa.Table:
    """Build the Arrow table (schema EXAMPLE); `offsets` (N + 1,) are those of the sequences in `masked.ids`.

    `parents`, int64 (N,): hashes of parents, for examples of two texts. `prompt_lengths`: tokens of the
    prompts of A and of the other texts; without prompts, 0 or empty. `strings`: the texts of N examples.
    """
    rows, prompts = len(sequences), EXAMPLE.field("prompt_lengths").type
    no_label = pa.nulls(rows, pa.bool_())
    columns = [
        _lists(offsets, masked.ids),
        array(first_lengths(sequences, offsets, template).astype(np.int32)),
        _lists(masked.offsets, positions_in_sequence(masked, offsets)),
        _lists(masked.offsets, masked.labels),
        no_label if sequences.not_next is None else array(sequences.not_next),
        no_label if sequences.swapped is None else array(sequences.swapped),
        array(sequences.document_a),
        array(sequences.document_b),
        pa.nulls(rows, pa.int64()) if parents is None else array(parents),
        _negative_lengths(sequences),
        pa.repeat(pa.scalar(list(prompt_lengths), prompts), rows) if any(prompt_lengths) else pa.nulls(rows, prompts),
        pa.nulls(rows, pa.string()) if strings is None else pa.array(strings, pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=EXAMPLE)


def _negative_lengths(sequences: Sequences) -> pa.Array:
    """Return the lengths of each example's hard negatives, list<int32> (N,); null without negatives."""
    if not sequences.negatives:
        return pa.nulls(len(sequences), EXAMPLE.field("negative_lengths").type)
    counts = np.diff(sequences.offsets) - 2
    number = np.arange(len(sequences.starts)) - np.repeat(sequences.offsets[:-1], counts + 2)
    given = np.arange(sequences.negatives) < counts[:, None]
    lengths = np.zeros(given.shape, np.int64)
    lengths[given] = (sequences.ends - sequences.starts)[number >= 2] + SPECIALS_OF_ONE
    return _lists(sequences.negatives * np.arange(len(sequences) + 1), lengths.ravel())


def _lists(offsets: np.ndarray, values: np.ndarray) -> pa.ListArray:
    """Build a list<int32> array from `values` and `offsets`."""
    return pa.ListArray.from_arrays(array(offsets.astype(np.int32)), array(values.astype(np.int32, copy=False)))


def array(values: np.ndarray) -> pa.Array:
    """Return numbers or booleans as an Arrow array; numbers are not copied.

    `pa.array` would import pandas, which takes each process that makes rows half a second.
    """
    data = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(data)])
