"""Muon for the matrices of the layers (Jordan et al. 2024), and AdamW for all other parameters, as one optimiser."""

from typing import Any

import torch
from torch import Tensor

ADAM_STATE = ("exp_avg", "exp_avg_sq", "step")
MUON_STATE = ("momentum_buffer",)


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon for parameter groups with `muon` set, and torch.optim.AdamW for the others.

    Muon's updates have the size of AdamW's (Liu et al. 2025), so both use one learning rate. Query, key and value, and
    the two halves of geglu, count as one matrix. As in torch's fused optimisers, gradients are divided by `grad_scale`,
    and a non-zero `found_inf` skips the update; torch.optim.Muon has no such option, so the host waits for the device
    once per step.
    """

    _step_supports_amp_scaling = True

    def __init__(
        self, groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float, momentum: float
    ) -> None:
        """Create both optimisers. `lr` is the initial rate of all groups."""
        matrices = [group for group in groups if group.get("muon")]
        others = [group for group in groups if not group.get("muon")]
        self.muon = torch.optim.Muon(matrices, lr=lr, momentum=momentum, adjust_lr_fn="match_rms_adamw")
        self.adam = torch.optim.AdamW(others, lr=lr, betas=betas, eps=eps, fused=True)
        super().__init__([{"params": group["params"]} for group in groups], {})
        # All three share their groups and their state, so that a rate or a loaded state counts in each.
        self.param_groups = [*self.muon.param_groups, *self.adam.param_groups]
        self.adam.state = self.muon.state = self.state
        self.grad_scale: Tensor | None = None
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # ty: ignore[incompatible-method-override]
        """Update the parameters by their gradients; parameters without a gradient do not change."""
        if self.found_inf is not None and self.found_inf.item():
            return
        if self.grad_scale is not None:
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            given = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch._foreach_div_(given, self.grad_scale)
        self.muon.step()
        self.adam.step()
