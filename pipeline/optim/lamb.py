"""LAMB: Adam's update, scaled per matrix to the matrix's norm (You et al. 2020, algorithm 2)."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from pipeline.optim.fused_adam import FusedAdam


class Lamb(FusedAdam):
    """Algorithm 2 with bias correction and the identity as phi.

    As in the paper's code, biases and LayerNorms are not scaled; groups without `scaled` set get Adam's update.
    `matrices` is the number of matrices of equal shape stacked in each parameter of a group. Each matrix is scaled
    by its own norm, so that a fused projection is trained like its parts.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], **defaults: Any) -> None:
        super().__init__(groups, scaled=False, **defaults)

    def _step_group(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        if not group["scaled"]:
            self._adam(parameters, parameters, group, rate=group["lr"])
            return
        updates = self._negative_updates(parameters, group)
        pieces = [piece for parameter in parameters for piece in parameter.chunk(group["matrices"])]
        weight_norms, update_norms = (torch.stack(torch._foreach_norm(each)) for each in (pieces, updates.matrices))
        ratios = (weight_norms / update_norms).masked_fill((weight_norms == 0) | (update_norms == 0), 1.0)
        self._add(parameters, updates, ratios * group["lr"])
