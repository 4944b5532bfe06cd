"""Optimisers that update matrices together, compared with one plain update after the other, and with torch's Muon."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pipeline.config.training import AdamW, Lamb, Muon, StableAdamW
from pipeline.optim.build import build_optimizer, load_optimizer, optimizer_tensors
from pipeline.optim.loss_scale import LossScale
from pipeline.train.step import update

RATE, DECAY, BETAS, EPSILON = 0.01, 0.1, (0.9, 0.98), 1e-6
CHOSEN = {"learning_rate": RATE, "weight_decay": DECAY, "beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPSILON}
CLIPPED, NOT_CLIPPED = 3.0, 1e6
STEPS = 6


def module_of() -> nn.Module:
    """Two layers with matrices of equal and of other shapes, stacked ones, and a part that gets no gradient."""
    torch.manual_seed(0)
    layers = [
        nn.ModuleDict({"qkv": nn.Linear(8, 24), "out": nn.Linear(8, 8), "wide": nn.Linear(8, 16)}) for _ in range(2)
    ]
    return nn.ModuleDict(
        {
            "embeddings": nn.Embedding(9, 8),
            "layers": nn.ModuleList(layers),
            "head": nn.Linear(8, 8),
            "no": nn.Linear(8, 8),
        }
    )


def set_gradients(module: nn.Module, step: int, scale: float) -> None:
    """Set gradients that grow at step 3, and are not finite at step 2; the part `no` gets none."""
    for place, (name, parameter) in enumerate(module.named_parameters()):
        if not name.startswith("no."):
            gradient = (3 * parameter.detach() + place + step).cos() * (8.0 if step == 3 else 1.0)
            parameter.grad = gradient * scale
    if step == 2:
        module["head"].bias.grad[1] = math.nan


class Plain:
    """Adam's moments of one matrix, as the paper has them, in float64."""

    def __init__(self, weights: Tensor) -> None:
        self.mean, self.square, self.step = torch.zeros_like(weights), torch.zeros_like(weights), 0

    def update(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return Adam's update and the corrected second moment."""
        self.step += 1
        self.mean = BETAS[0] * self.mean + (1 - BETAS[0]) * gradient
        self.square = BETAS[1] * self.square + (1 - BETAS[1]) * gradient.square()
        mean, square = self.mean / (1 - BETAS[0] ** self.step), self.square / (1 - BETAS[1] ** self.step)
        return mean / (square.sqrt() + EPSILON), square


def adam_w(weights: Tensor, gradient: Tensor, moments: Plain, decay: float, rate: float) -> Tensor:
    return weights - rate * (moments.update(gradient)[0] + decay * weights)


def lamb(weights: Tensor, gradient: Tensor, moments: Plain, decay: float, rate: float) -> Tensor:
    change = moments.update(gradient)[0] + decay * weights
    return weights - rate * change * (weights.norm() / change.norm() if decay else 1.0)


def stable_adam_w(weights: Tensor, gradient: Tensor, moments: Plain, decay: float, rate: float) -> Tensor:
    change, square = moments.update(gradient)
    growth = (gradient.square() / square.clamp(min=EPSILON**2)).mean().sqrt()
    return weights - rate / max(1.0, growth.item()) * (change + decay * weights)


def trained_plainly(rule: Callable[..., Tensor], clip_norm: float, *, muon: bool) -> dict[str, Tensor]:
    """Return the weights after all steps, one matrix after the other, in float64; Muon's matrices in float32."""
    module = module_of()
    weights = {name: parameter.detach().double() for name, parameter in module.named_parameters()}
    matrices = {name for name in weights if muon and name.startswith("layers.") and name.endswith("weight")}
    parts = {name: 3 if name.endswith("qkv.weight") else 1 for name in weights}
    moments = {name: [Plain(part) for part in weights[name].chunk(parts[name])] for name in weights}
    options = {"weight_decay": DECAY, "momentum": 0.95, "adjust_lr_fn": "match_rms_adamw"}
    given = [parameter for name, parameter in module.named_parameters() if name in matrices]
    torch_muon = torch.optim.Muon(given or [nn.Parameter(torch.ones(1, 1))], **options)
    for step in range(STEPS):
        if step == 2:
            continue
        set_gradients(module, step, 1.0)
        rate = RATE / (1 + step)
        gradients = {n: p.grad.double() for n, p in module.named_parameters() if p.grad is not None}
        norm = math.sqrt(sum(gradient.square().sum().item() for gradient in gradients.values()))
        times = min(1.0, clip_norm / norm)
        torch_muon.param_groups[0]["lr"] = rate
        torch_muon.step()
        for name, parameter in module.named_parameters():
            if name in gradients and name not in matrices:
                pairs = zip(weights[name].chunk(parts[name]), gradients[name].chunk(parts[name]), moments[name])
                decay = DECAY if parameter.ndim > 1 else 0.0
                weights[name] = torch.cat([rule(w, times * g, m, decay, rate) for w, g, m in pairs])
                parameter.data.copy_(weights[name])
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize(
    ("chosen", "rule", "clip_norm"),
    [
        (AdamW(**CHOSEN), adam_w, CLIPPED),
        (Lamb(**CHOSEN), lamb, CLIPPED),
        (StableAdamW(**CHOSEN), stable_adam_w, CLIPPED),
        (Muon(**CHOSEN), adam_w, NOT_CLIPPED),  # in bfloat16, the last bit of a factor would matter
    ],
)
@pytest.mark.parametrize("scaled", [False, True])
def test_updates_are_those_of_one_matrix_after_the_other(
    chosen: AdamW, rule: Callable[..., Tensor], clip_norm: float, scaled: bool
) -> None:
    """With clipping, a rate that falls, a step without a finite gradient, and a resumed run after step 3."""
    module = module_of()
    optimizer = build_optimizer(chosen, module)
    scale = LossScale(torch.device("cpu")) if scaled else None
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    for step in range(STEPS):
        if step == 4:
            saved, optimizer = optimizer_tensors(optimizer, module), build_optimizer(chosen, module)
            load_optimizer(optimizer, module, saved, complete=False)
        set_gradients(module, step, 1.0 if scale is None else scale.value.item())
        norm = update(optimizer, module, rate=RATE / (1 + step), clip_norm=clip_norm, scale=scale)
        assert norm > CLIPPED or step == 2
    wanted = trained_plainly(rule, clip_norm, muon=isinstance(chosen, Muon))
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.detach(), wanted[name], rtol=1e-6, atol=1e-6)
        assert torch.equal(parameter, before[name]) == name.startswith("no.")
