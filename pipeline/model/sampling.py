"""Sample vocabulary entries from their probabilities, with random numbers that depend only on the seed.

Shapes: M positions, V vocabulary entries.
"""

import torch
from torch import Tensor

BLOCK = 64
"""Number of entries per block in `entries_at`. Blocks of about the square root of the vocabulary's size are fastest."""


def drawn(positions: Tensor) -> Tensor:
    """Return random numbers in [0, 1), float64 (M,), on the device of `positions` (M,), from its global generator."""
    numbers_M = torch.empty(positions.shape, dtype=torch.float64, device=positions.device)
    _fill(numbers_M)
    return numbers_M


# A custom operator draws the same numbers, in the same order, in compiled and in eager code. The operator fills a
# tensor that the caller passes, for the reason given in pipeline.model.dropout.
@torch.library.custom_op("pipeline::uniform", mutates_args=("numbers_M",))
def _fill(numbers_M: Tensor) -> None:
    """Fill a tensor with uniform random numbers in [0, 1)."""
    numbers_M.uniform_()


@_fill.register_fake
def _(numbers_M: Tensor) -> None:
    return None


def entries_at(shares: Tensor, drawn_M: Tensor) -> Tensor:
    """Return one sampled entry per position, int64 (M,).

    A position's entry is the first entry whose cumulative share is above the position's random number.

    `shares` are the entries' probabilities, float32 (M, V). `drawn_M` are the numbers (M,) from `drawn`. Gumbel noise
    (the code of Clark et al. 2020) samples from the same distribution. But it needs V random numbers and V logarithms
    per position, instead of one random number. For speed, the search has two stages: cumulative sums over blocks find
    the block of an entry, then cumulative sums inside this block find the entry.
    """
    V = shares.shape[1]
    whole = V - V % BLOCK
    sums = [shares[:, :whole].unflatten(1, (-1, BLOCK)).sum(2), shares[:, whole:].sum(1, keepdim=True)]
    passed = torch.cat(sums, dim=1).double().cumsum(1)
    wanted_M = drawn_M[:, None] * passed[:, -1:]
    block_M = torch.searchsorted(passed, wanted_M, right=True).clamp(max=passed.shape[1] - 1)
    entries = block_M * BLOCK + torch.arange(BLOCK, device=shares.device)
    inside = (shares.gather(1, entries.clamp(max=V - 1)) * (entries < V)).double().cumsum(1)
    before_M = passed.gather(1, block_M) - inside[:, -1:]
    index_M = torch.searchsorted(inside, wanted_M - before_M, right=True)
    # The last entry of the block with a share above 0. Because of rounding, index_M may lie after this entry.
    last_M = (inside < inside[:, -1:]).sum(1, keepdim=True)
    return (block_M * BLOCK + torch.minimum(index_M, last_M))[:, 0].clamp(max=V - 1)
