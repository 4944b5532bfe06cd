"""Test inputs for exports: batches of random ids with unequal lengths, unpadded for our model and padded for others.

Shapes: N sequences, S tokens in the longest, T tokens in all.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pipeline.batch import Batch, MaskedBatch, collate
from pipeline.config.model import Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.model.families.table import family_of
from pipeline.text.schema import EXAMPLE

TOLERANCE = 1e-5
"""Maximum difference of float32 outputs, relative to the largest output, or to 1 if the largest output is below 1."""

MOST_TOKENS = 512
"""Maximum length of a probe for models without position embeddings; all pairs of longer texts would need gigabytes."""


def _padding_entry(model: Model) -> int:
    """Return the id that published models use for padding.

    RoBERTa models recognise padding by this id, and their position ids start with the next number.
    """
    return max(0, model.first_position - 1)


def probes(model: Model, vocabulary_size: int) -> Iterator[MaskedBatch]:
    """Yield batches of different shapes: a single token, unequal lengths, and the model's maximum length.

    Without position embeddings, no row of a table depends on the maximum length, and MOST_TOKENS are enough.
    Block-sparse attention is compared where it is full: transformers has no random blocks in evaluation.
    """
    longest = model.maximum_positions if model.position_rows else min(model.maximum_positions, MOST_TOKENS)
    if isinstance(model.attention, BlockSparseAttention):
        longest = min(longest, model.attention.longest_full)
    for lengths in ((1,), (min(7, longest), 1, min(19, longest)), (longest, (longest + 1) // 2)):
        yield probe(model, vocabulary_size, lengths)


def probe(model: Model, vocabulary_size: int, lengths: Sequence[int]) -> MaskedBatch:
    """Return sequences of random ids with labels at every position.

    If models of this family recognise padding by its id, the padding id does not occur.
    """
    random, padding = np.random.default_rng(0), _padding_entry(model)
    entries = np.array([entry for entry in range(vocabulary_size) if entry != padding or not model.first_position])
    rows = [
        {
            "ids": ids,
            "first_length": (len(ids) + 1) // 2,
            "masked_positions": range(len(ids)),
            "masked_labels": ids,
            "not_next": False,
            "document_a": 0,
            "document_b": 0,
        }
        for ids in (entries[random.integers(0, len(entries), length)].tolist() for length in lengths)
    ]
    return collate(pa.Table.from_pylist(rows, schema=EXAMPLE))


def padded(batch: Batch, model: Model) -> dict[str, Tensor]:
    """Return the batch as inputs of the family's published models, int64 (N, S). Padding has segment 0 and mask 0."""
    rows_T = torch.repeat_interleave(torch.arange(batch.sequences), batch.offsets.diff())
    values = {
        "input_ids": (batch.ids_T, _padding_entry(model)),
        "attention_mask": (torch.ones_like(batch.ids_T), 0),
        "token_type_ids": (batch.segments_T, 0),
    }
    filled = {}
    for name in family_of(model).inputs:
        value_T, fill = values[name]
        filled[name] = torch.full((batch.sequences, batch.maximum_length), fill, dtype=torch.int64)
        filled[name][rows_T, batch.positions_T] = value_T
    return filled


def difference(theirs: Tensor, ours: Tensor) -> float:
    """Return the largest difference, relative to the largest value of `ours`, or to 1 if that value is below 1.

    The result is NaN if any value is NaN.
    """
    # torch's max returns NaN if any value is NaN; Python's does not.
    return ((theirs - ours).abs().max() / ours.abs().max().clamp(min=1)).item()
