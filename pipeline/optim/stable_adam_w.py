"""StableAdamW: AdamW with a lower rate where a tensor's gradients grow suddenly (Wortsman et al. 2023, algorithm 2)."""

from typing import Any

import torch

from pipeline.optim.lamb import Lamb, pieces


class StableAdamW(Lamb):
    """AdamW whose rate is divided by max(1, RMS(g / sqrt(v))) per tensor; g is the gradient, v the corrected moment.

    Moments, stacked matrices, `grad_scale` and `found_inf` are as in Lamb; updates are not scaled to norms.
    """

    def _step_group(self, parameters: list[Any], group: dict[str, Any]) -> None:
        scale = parameters[0].new_ones(()) if self.grad_scale is None else self.grad_scale
        skip = torch.zeros_like(scale, dtype=torch.bool) if self.found_inf is None else self.found_inf > 0
        gradients = [torch.where(skip, 0.0, parameter.grad / scale) for parameter in parameters]
        updates = self._adam(parameters, gradients, skip, group["betas"], group["eps"])
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        steps = self.state[parameters[0]]["step"]
        correction = torch.where(skip, 1.0, 1 - group["betas"][1] ** steps)
        squares = [self.state[parameter]["exp_avg_sq"] for parameter in parameters]
        for update, gradient, square in zip(
            *(pieces(tensors, group["matrices"]) for tensors in (updates, gradients, squares)), strict=True
        ):
            ratio = gradient.square() / (square / correction).clamp(min=group["eps"] ** 2)
            update /= ratio.mean().sqrt().clamp(min=1.0)
        torch._foreach_mul_(updates, torch.where(skip, 0.0, 1.0))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
