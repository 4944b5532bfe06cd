"""Dynamic loss scaling for float16, whose smallest numbers are too large for many gradients (Micikevicius et al. 2018,
section 3.2), with the constants of torch.amp.GradScaler.

GradScaler itself also waits for the device and divides the gradients. Here the optimiser's kernel divides them, in the
same operation that clips them (see `update` in train/step.py).
"""

from typing import Any

import torch
from torch import Tensor

FIRST = 65_536.0
GROWTH, BACKOFF = 2.0, 0.5
GROWS_AFTER = 2_000
"""Number of consecutive steps without overflow after which the scale grows."""


class LossScale:
    """Factor on the loss, on the device. An optimiser carries it, and checkpoints have it in the optimiser's state."""

    def __init__(self, device: torch.device) -> None:
        self.value = torch.full((), FIRST, device=device)
        self.steps = torch.zeros((), device=device)
        """Steps without overflow since the scale changed."""

    def follow(self, overflowed: Tensor) -> None:
        """Halve the scale if the gradients of a step overflowed; double it after GROWS_AFTER steps without overflow.

        Both tensors change in place, since a recorded step reads them, and the host does not wait for the device.
        """
        self.steps.add_(1)
        bad, grows = overflowed.bool(), self.steps == GROWS_AFTER
        self.value.mul_(torch.ones_like(self.value).masked_fill_(grows, GROWTH).masked_fill_(bad, BACKOFF))
        self.steps.masked_fill_(bad | grows, 0.0)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Load copies of the tensors of another scale, by name."""
        for name, tensor in vars(self).items():
            tensor.copy_(tensors[name])


def loss_scale_of(optimizer: Any, autocast: torch.autocast, device: torch.device) -> LossScale | None:
    """Return the optimiser's loss scale, new at its first step; None for a number format that needs none."""
    if not scales_loss(autocast):
        return None
    if getattr(optimizer, "loss_scale", None) is None:
        optimizer.loss_scale = LossScale(device)
    return optimizer.loss_scale


def scales_loss(autocast: torch.autocast) -> bool:
    """Return whether training in this number format needs a loss scale."""
    return autocast.fast_dtype == torch.float16
