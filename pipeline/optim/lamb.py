"""LAMB: Adam's update, scaled per matrix to the matrix's norm (You et al. 2020, algorithm 2)."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 with bias correction and the identity as phi; parameter groups may set any of the options.

    As in the paper's code, groups without weight decay (biases, LayerNorm) are not scaled; they get Adam's update.
    `matrices` is the number of matrices of equal shape stacked in each parameter of a group. Each matrix is scaled
    by its own norm, so that a fused projection is trained like its parts.

    As in torch's fused optimisers, gradients are divided by `grad_scale`, and a non-zero `found_inf` skips the update.
    Both are tensors on the device (None: no effect), so the host does not wait. All parameters of a group must have
    the same step count.
    """

    _step_supports_amp_scaling = True

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "matrices": 1})
        self.grad_scale: Tensor | None = None
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # ty: ignore[incompatible-method-override]
        """Update the parameters by their gradients; parameters without a gradient do not change."""
        for group in self.param_groups:
            if parameters := [parameter for parameter in group["params"] if parameter.grad is not None]:
                self._step_group(parameters, group)

    def _step_group(self, parameters: list[Any], group: dict[str, Any]) -> None:
        scale = parameters[0].new_ones(()) if self.grad_scale is None else self.grad_scale
        skip = torch.zeros_like(scale, dtype=torch.bool) if self.found_inf is None else self.found_inf > 0
        gradients = [torch.where(skip, 0.0, parameter.grad / scale) for parameter in parameters]
        updates = self._adam(parameters, gradients, skip, group["betas"], group["eps"])
        if group["weight_decay"] > 0:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
            _scale_to_norms(pieces(updates, group["matrices"]), pieces(parameters, group["matrices"]))
        torch._foreach_mul_(updates, torch.where(skip, 0.0, 1.0))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _adam(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        skip: Tensor,
        betas: tuple[float, float],
        epsilon: float,
    ) -> list[Tensor]:
        """Return bias-corrected Adam updates as new tensors; if `skip`, moments and step counts do not change."""
        states = [self._state(parameter) for parameter in parameters]
        means, squares, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        # Without `alpha`, torch would read the 0-dimensional tensor as a number, and the host would wait for it.
        torch._foreach_add_(steps, torch.where(skip, 0.0, 1.0), alpha=1)
        for moments, beta in zip((means, squares), betas):
            torch._foreach_mul_(moments, torch.where(skip, 1.0, beta))
        torch._foreach_add_(means, gradients, alpha=1 - betas[0])
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - betas[1])
        # If the first step is skipped, 1 - beta ** 0 is 0. Use 1 instead, so that nothing is divided by 0.
        corrections = [torch.where(skip, 1.0, 1 - beta ** steps[0]) for beta in betas]
        roots = torch._foreach_div(squares, corrections[1])
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, epsilon)
        updates = torch._foreach_div(means, corrections[0])
        torch._foreach_div_(updates, roots)
        return list(updates)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            # On the parameter's device, so that the host does not wait for the step count.
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


def pieces(tensors: Sequence[Tensor], matrices: int) -> list[Tensor]:
    """Return views of the `matrices` matrices of equal shape that are stacked in each tensor."""
    return [piece for tensor in tensors for piece in tensor.chunk(matrices)]


def _scale_to_norms(updates: list[Tensor], weights: list[Tensor]) -> None:
    """Scale each update in place to the norm of its weights; if either norm is 0, the update does not change."""
    weight_norms, update_norms = (torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, updates))
    ratios = torch.where((weight_norms > 0) & (update_norms > 0), weight_norms / update_norms, 1.0)
    torch._foreach_mul_(updates, list(ratios.unbind()))
