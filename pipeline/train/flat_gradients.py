"""Gradients of a model next to each other in memory, so that ranks add them up in a few large pieces.

DistributedDataParallel starts each reduction during the backward, from hooks, which a CUDA graph cannot record.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import nn

PIECE = 1 << 26
"""Maximum numbers of a reduction: 256 MB in float32. While a piece is sent, the next one is cast."""
ALIGNMENT = 32
"""Each gradient starts at a multiple of this many numbers, so that vectorised kernels can read it."""


class FlatGradients:
    """The gradients of some parameters of one number format, as views of a flat tensor."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        sizes = [-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in parameters]
        starts = [0, *accumulate(sizes)]
        self.flat = parameters[0].new_zeros(starts[-1])
        self.pairs = [
            (parameter, self.flat[start : start + parameter.numel()].view(parameter.shape))
            for parameter, start in zip(parameters, starts)
        ]
        """Each parameter and its gradient."""

    def attach(self) -> None:
        """Let backward add to these gradients."""
        for parameter, gradient in self.pairs:
            parameter.grad = gradient

    def clear(self) -> None:
        """Set all gradients to 0."""
        self.flat.zero_()

    def reduce(self, precision: str) -> None:
        """Add up the gradients of all ranks in a number format, float32 or bfloat16. The host does not wait for a GPU.

        All ranks must have the same parameters in the same order.
        """
        dtype, sending = getattr(torch, precision), []
        for piece in self.flat.split(PIECE):
            sent = piece.to(dtype)
            sending.append((piece, sent, dist.all_reduce(sent, async_op=True)))
        for piece, sent, work in sending:
            work.wait()
            if sent is not piece:
                piece.copy_(sent)


def equal_on_all_ranks(module: nn.Module) -> None:
    """Give all ranks the parameters and buffers of rank 0, as DistributedDataParallel does at its start."""
    for tensor in module.state_dict().values():
        dist.broadcast(tensor, 0)
