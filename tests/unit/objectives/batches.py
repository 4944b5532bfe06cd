"""Batches of random ids for the tests of the objectives."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from pipeline.batch import Batch, MaskedBatch, NextSentenceBatch, PassagesBatch, TaskBatch

VOCABULARY_SIZE = 101


def make_batch(lengths: list[int], seed: int = 0) -> NextSentenceBatch:
    """Return rows of these lengths, in two segments, with every third token masked and labels for sentence pairs."""
    generator = torch.Generator().manual_seed(seed)
    positions = torch.cat([torch.arange(n) for n in lengths])
    masked = torch.arange(0, len(positions), 3)
    return NextSentenceBatch(
        ids_T=torch.randint(0, VOCABULARY_SIZE, positions.shape, generator=generator),
        segments_T=(positions > 4).long(),
        positions_T=positions,
        offsets=torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32),
        maximum_length=max(lengths),
        masked_positions_M=masked,
        masked_labels_M=torch.randint(0, VOCABULARY_SIZE, masked.shape, generator=generator),
        not_next_N=torch.randint(0, 2, (len(lengths),), generator=generator),
    )


def tokens_of(batch: Batch) -> dict[str, Any]:
    """Return the fields that all batches have."""
    return {field.name: getattr(batch, field.name) for field in fields(Batch)}


def without_pairs(batch: MaskedBatch) -> MaskedBatch:
    """Return the batch without labels of its pairs."""
    masked = {"masked_positions_M": batch.masked_positions_M, "masked_labels_M": batch.masked_labels_M}
    return MaskedBatch(**tokens_of(batch), **masked)


def as_task(
    batch: Batch, labels: Tensor | None = None, teacher: Tensor | None = None, passages: Tensor | None = None
) -> TaskBatch:
    """Return the sequences with these labels, a teacher's logits, and the number of sequences of each row."""
    empty = torch.zeros(0)
    about = {"labels": empty if labels is None else labels, "teacher": empty if teacher is None else teacher}
    if passages is not None:
        return PassagesBatch(**tokens_of(batch), **about, passages=passages)
    return TaskBatch(**tokens_of(batch), **about)
