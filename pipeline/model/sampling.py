"""Sample vocabulary entries from their probabilities, with numbers that depend on the seed alone.

Shapes: M positions, V vocabulary entries.
"""

import torch
from torch import Tensor

BLOCK = 64
"""Entries whose shares are summed first: about the square root of a vocabulary's size is fastest."""


def drawn(positions: Tensor) -> Tensor:
    """Return a random number in [0, 1) for each of the positions (M,), float64, from their device's global
    generator.
    """
    numbers_M = torch.empty(positions.shape, dtype=torch.float64, device=positions.device)
    _fill(numbers_M)
    return numbers_M


# An operator of our own draws the same numbers, in the same order, in compiled and in eager code. It fills a tensor
# that it is given, as the operator of dropout does.
@torch.library.custom_op("pipeline::uniform", mutates_args=("numbers_M",))
def _fill(numbers_M: Tensor) -> None:
    """Fill a tensor with numbers drawn evenly from [0, 1)."""
    numbers_M.uniform_()


@_fill.register_fake
def _(numbers_M: Tensor) -> None:
    return None


def entries_at(shares: Tensor, drawn_M: Tensor) -> Tensor:
    """Return the entries (M,), int64, at which cumulative float32 shares (M, V) pass numbers (M,) from `drawn`: samples
    of the distributions that the shares are.

    Gumbel noise (Clark et al. 2020's code) gives the same distribution, with V random numbers and logarithms per
    position instead of one. Sums of blocks find the block, and the sums in it the entry.
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
    place_M = torch.searchsorted(inside, wanted_M - before_M, right=True)
    last_M = (inside < inside[:, -1:]).sum(1, keepdim=True)  # the block's last entry with a share, against rounding
    return (block_M * BLOCK + torch.minimum(place_M, last_M))[:, 0].clamp(max=V - 1)
