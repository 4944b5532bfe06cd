"""A batch of random ids for the tests of the pretraining objectives."""

import torch

from pipeline.batch import Batch

VOCABULARY_SIZE = 101


def make_batch(lengths: list[int], seed: int = 0) -> Batch:
    """Return rows of these lengths, in two segments, with every third token masked and labels for sentence pairs."""
    generator = torch.Generator().manual_seed(seed)
    positions = torch.cat([torch.arange(n) for n in lengths])
    masked = torch.arange(0, len(positions), 3)
    return Batch(
        ids_T=torch.randint(0, VOCABULARY_SIZE, positions.shape, generator=generator),
        segments_T=(positions > 4).long(),
        positions_T=positions,
        offsets=torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32),
        maximum_length=max(lengths),
        masked_positions_M=masked,
        masked_labels_M=torch.randint(0, VOCABULARY_SIZE, masked.shape, generator=generator),
        not_next_N=torch.randint(0, 2, (len(lengths),), generator=generator),
    )
