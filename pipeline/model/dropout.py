"""Dropout that a CPU can draw quickly."""

import torch
from torch import Tensor
from torch.nn import functional as F

LEVELS = 1 << 16
"""On a CPU, probabilities are rounded to multiples of 1 / LEVELS: four draws share one 64-bit random number."""


def dropout(x: Tensor, probability: float) -> Tensor:
    """Zero elements with the given probability and scale the others so that the mean stays; 0 changes nothing.

    Draws from the global generator of x's device.
    """
    if probability == 0:
        return x
    dropped = round(probability * LEVELS)
    if x.device.type != "cpu" or dropped == LEVELS:
        return F.dropout(x, probability)
    return x * (keep_mask(x.shape, dropped).to(x.dtype) * (LEVELS / (LEVELS - dropped)))


# torch draws one number an element, on one thread, and compiled code one after the other: a quarter of a small model's step.
# As an operator of its own this one stays whole when compiled, so that compiled code drops what eager code drops.
@torch.library.custom_op("pipeline::keep_mask", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def keep_mask(shape: list[int], dropped: int) -> Tensor:
    """A bool tensor on the CPU that is False with probability dropped / LEVELS."""
    elements = torch.Size(shape).numel()
    draws = torch.empty((elements + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)
    return (draws[:elements] >= dropped - LEVELS // 2).view(shape)


@keep_mask.register_fake
def _(shape: list[int], dropped: int) -> Tensor:
    return torch.empty(shape, dtype=torch.bool)
