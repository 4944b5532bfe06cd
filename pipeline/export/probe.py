"""Test inputs for every export: ragged batches of random ids, flat for our model and padded for others.

N sequences, S the longest of them, M their tokens together.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pipeline.batch import Batch, collate
from pipeline.text.schema import EXAMPLE

TOLERANCE = 1e-5
"""Largest allowed difference of outputs in float32, relative to the largest output (to 1 if that is smaller)."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Inputs of published BERTs, each int64 (N, S)."""


def probes(vocabulary_size: int, maximum_positions: int) -> Iterator[Batch]:
    """Yield batches of different shapes: a single token, unequal lengths, and the model's maximum length."""
    longest = maximum_positions
    for lengths in ((1,), (min(7, longest), 1, min(19, longest)), (longest, (longest + 1) // 2)):
        yield probe(vocabulary_size, lengths)


def probe(vocabulary_size: int, lengths: Sequence[int]) -> Batch:
    """Return sequences of random ids, with labels at every position."""
    random = np.random.default_rng(0)
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
        for ids in (random.integers(0, vocabulary_size, length).tolist() for length in lengths)
    ]
    return collate(pa.Table.from_pylist(rows, schema=EXAMPLE))


def padded(batch: Batch) -> dict[str, Tensor]:
    """Return the batch as published models take it, padded with id 0 of segment 0 under a zero attention mask."""
    rows_T = torch.repeat_interleave(torch.arange(batch.sequences), batch.offsets.diff())
    values = (batch.ids_T, torch.ones_like(batch.ids_T), batch.segments_T)
    filled = {name: torch.zeros(batch.sequences, batch.maximum_length, dtype=torch.int64) for name in INPUTS}
    for tensor_NS, value_T in zip(filled.values(), values, strict=True):
        tensor_NS[rows_T, batch.positions_T] = value_T
    return filled


def difference(theirs: Tensor, ours: Tensor) -> float:
    """Return the largest difference relative to our largest value (to 1 if that is smaller); NaN if
    there is any NaN.
    """
    return (
        (theirs - ours).abs().max() / ours.abs().max().clamp(min=1)
    ).item()  # torch's max lets NaN win, Python's does not
