"""Muon for the matrices of the layers (Jordan et al. 2024), and AdamW for all other parameters, as one optimiser."""

import math
from typing import Any

import torch
from torch import Tensor

from pipeline.optim.fused_adam import FusedAdam

MUON_STATE = ("momentum_buffer",)
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of an iteration, by Jordan et al. 2024; these and all that follows are as in torch.optim.Muon."""
ITERATIONS = 5
LEAST_NORM = 1e-7


class Muon(FusedAdam):
    """torch.optim.Muon for parameter groups with `muon` set, and torch.optim.AdamW for the others.

    Muon's updates have the size of AdamW's (Liu et al. 2025), so both use one learning rate. Query, key and value, and
    the two halves of geglu, count as one matrix. Matrices of one shape are updated together.
    """

    def __init__(
        self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float, momentum: float
    ) -> None:
        super().__init__(groups, lr=lr, betas=betas, eps=eps, momentum=momentum, muon=False)

    def _step_group(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        if not group["muon"]:
            self._adam(parameters, parameters, group, rate=group["lr"], decay=group["weight_decay"])
            return
        rate = group["lr"] if self.found_inf is None else group["lr"] * (1 - self.found_inf)
        shapes: dict[torch.Size, list[Tensor]] = {}
        for parameter in parameters:
            shapes.setdefault(parameter.shape, []).append(parameter)
        torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        for shape, same in shapes.items():
            # The size of AdamW's updates; contiguous, because torch adds other tensors one by one.
            updates = _orthogonal(self._momentum(same, group["momentum"]))
            updates = updates.to(same[0].dtype, memory_format=torch.contiguous_format)
            updates.mul_(-rate * 0.2 * math.sqrt(max(shape)))
            torch._foreach_add_(same, list(updates.unbind()))

    def _momentum(self, parameters: list[Tensor], momentum: float) -> Tensor:
        """Update the momentum of N matrices of one shape; return it with Nesterov's correction, (N, rows, columns)."""
        buffers = []
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            buffers.append(state["momentum_buffer"])
        gradients = torch.stack([parameter.grad for parameter in parameters if parameter.grad is not None])
        stacked = torch.stack(buffers)
        if self.grad_scale is not None:
            gradients.div_(self.grad_scale)
        if self.found_inf is not None:
            gradients = torch.where(self.found_inf > 0, stacked, gradients)  # leaves the momentum as it is
        stacked.lerp_(gradients, 1 - momentum)
        torch._foreach_copy_(buffers, list(stacked.unbind()))
        return gradients.lerp_(stacked, momentum)


def _orthogonal(matrices: Tensor) -> Tensor:
    """Return the nearest orthogonal matrices (N, rows, columns), about, by Newton and Schulz in bfloat16."""
    wide = matrices.bfloat16()
    tall = wide.shape[1] > wide.shape[2]
    wide = wide.mT if tall else wide
    wide = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=LEAST_NORM)
    first, third, fifth = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), wide, beta=first)
    return wide.mT if tall else wide
