"""Cautious AdamW: AdamW without the parts of an update that go against the gradient (Liang et al. 2024)."""

from typing import Any

from torch import Tensor

from pipeline.optim.fused_adam import FusedAdam


class CautiousAdamW(FusedAdam):
    """AdamW whose update is 0 where its sign is that of the gradient, and larger elsewhere by the share of the rest."""

    def _step_group(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        updates = self._negative_updates(parameters, group)
        gradients, *_ = self._gradients_and_states(parameters)
        for update, gradient in zip(updates.tensors, gradients, strict=True):
            kept = (update * gradient < 0).float()
            update.mul_(kept).div_(kept.mean().clamp(min=1e-3))
        ones = updates.flat.new_ones(len(updates.matrices))
        self._add(parameters, updates, ones * group["lr"])
