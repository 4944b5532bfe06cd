"""StableAdamW: AdamW with a lower rate where a tensor's gradients grow suddenly (Wortsman et al. 2023, algorithm 2)."""

import math
from typing import Any

import torch
from torch import Tensor

from pipeline.optim.fused_adam import FusedAdam, block_like


class StableAdamW(FusedAdam):
    """AdamW whose rate is divided by max(1, RMS(g / sqrt(v))) per tensor; g is the gradient, v the corrected moment.

    Stacked matrices are as in Lamb.
    """

    def _step_group(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        updates = self._negative_updates(parameters, group)
        growth = self._growth(parameters, group)
        self._add(parameters, updates, group["lr"] / growth.clamp(min=1.0))

    def _growth(self, parameters: list[Tensor], group: dict[str, Any]) -> Tensor:
        """Return RMS(g / sqrt(v)) of each matrix, after the moments were updated; NaN if the step is skipped."""
        gradients, _, squares, steps = self._gradients_and_states(parameters)
        correction = -torch.expm1(steps[0] * math.log(group["betas"][1]))  # 1 - beta ** step, also near 0
        ratios = block_like(parameters, group["matrices"])
        torch._foreach_copy_(ratios.tensors, squares)
        ratios.flat.clamp_(min=correction * group["eps"] ** 2).rsqrt_()
        torch._foreach_mul_(ratios.tensors, gradients)
        norms = torch._foreach_norm(ratios.matrices)
        torch._foreach_div_(norms, [math.sqrt(matrix.numel()) for matrix in ratios.matrices])
        return torch.stack(norms) * correction.sqrt()
