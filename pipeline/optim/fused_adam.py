"""Adam by torch's fused kernel, as the base of optimisers that scale each matrix's update, with few launches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

ADAM_STATE = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True, kw_only=True)
class Block:
    """Tensors with the shapes of some parameters, next to each other in memory, so that one operation changes all."""

    flat: Tensor
    """All numbers."""
    tensors: list[Tensor]
    """Views of the shapes of the parameters."""
    matrices: list[Tensor]
    """Views of each matrix of each parameter, with one dimension."""

    def scale(self, factors: Tensor) -> None:
        """Multiply each matrix by its factor; matrices of equal size that follow each other take one operation."""
        start = first = 0
        for size, same in groupby(matrix.numel() for matrix in self.matrices):
            rows = len(list(same))
            self.flat[start : start + rows * size].view(rows, size).mul_(factors[first : first + rows, None])
            start, first = start + rows * size, first + rows


def block_like(parameters: Sequence[Tensor], matrices: int) -> Block:
    """Return an uninitialised block for parameters, in each of which `matrices` matrices of one shape are stacked."""
    sizes = [parameter.numel() for parameter in parameters]
    flat = parameters[0].new_empty(sum(sizes))
    views = zip(flat.split(sizes), parameters, strict=True)
    return Block(
        flat=flat,
        tensors=[part.view(parameter.shape) for part, parameter in views],
        matrices=list(flat.split([size // matrices for size in sizes for _ in range(matrices)])),
    )


class FusedAdam(torch.optim.Optimizer):
    """Base of optimisers that update all parameters of a group at once; groups may set any of the options.

    As in torch's fused optimisers, gradients are divided by `grad_scale`, and the update is skipped if `found_inf` is
    1. Both are tensors on the device (None: no effect), and a group's `lr` may be one, so the host does not wait, and a
    step can be recorded as a CUDA graph. All parameters of a group must have the same step count.
    """

    _step_supports_amp_scaling = True

    def __init__(self, groups: Iterable[dict[str, Any]], **defaults: Any) -> None:
        super().__init__(groups, {"weight_decay": 0.0, "matrices": 1} | defaults)
        self.grad_scale: Tensor | None = None
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # ty: ignore[incompatible-method-override]
        """Update the parameters by their gradients; parameters without a gradient do not change."""
        for group in self.param_groups:
            # By size, so that matrices of equal size are next to each other in a block.
            if parameters := sorted((one for one in group["params"] if one.grad is not None), key=Tensor.numel):
                self._step_group(parameters, group)

    def _step_group(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        raise NotImplementedError

    def _adam(
        self,
        parameters: list[Tensor],
        changed: list[Tensor],
        group: dict[str, Any],
        *,
        rate: float | Tensor,
        decay: float = 0.0,
    ) -> None:
        """Change `changed` (the parameters, or tensors of their shapes) by Adam's update. Gradients are unscaled."""
        gradients, means, squares, steps = self._gradients_and_states(parameters)
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            changed, gradients, means, squares, [], steps,
            lr=rate, beta1=group["betas"][0], beta2=group["betas"][1], weight_decay=decay, eps=group["eps"],
            amsgrad=False, maximize=False, grad_scale=self.grad_scale, found_inf=self.found_inf,
        )  # fmt: skip
        if self.found_inf is not None:
            # Without `alpha`, torch would read the 0-dimensional tensor as a number, and the host would wait for it.
            torch._foreach_add_(steps, self.found_inf, alpha=-1)

    def _negative_updates(self, parameters: list[Tensor], group: dict[str, Any]) -> Block:
        """Return Adam's updates without a rate, with weight decay, negative as they are added to the parameters."""
        updates = block_like(parameters, group["matrices"])
        updates.flat.zero_()
        self._adam(parameters, updates.tensors, group, rate=1.0)
        if group["weight_decay"] > 0:
            torch._foreach_add_(updates.tensors, parameters, alpha=-group["weight_decay"])
        return updates

    def _add(self, parameters: list[Tensor], updates: Block, factors: Tensor) -> None:
        """Add each matrix's update times its factor, or nothing if the step is skipped."""
        updates.scale(factors if self.found_inf is None else factors.masked_fill(self.found_inf > 0, 0.0))
        torch._foreach_add_(parameters, updates.tensors)

    def _gradients_and_states(self, parameters: list[Tensor]) -> tuple[list[Tensor], ...]:
        """Return gradients, means, squares and step counts of the parameters; states are created at the first step."""
        states = [self.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states, strict=True):
            if not state:
                # On the parameter's device, so that the host does not wait for the step count.
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means, squares, steps = ([state[name] for state in states] for name in ADAM_STATE)
        return gradients, means, squares, steps
