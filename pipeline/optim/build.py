"""Build the optimiser with its parameter groups, and convert its state to tensors by parameter name."""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pipeline.config import training as settings
from pipeline.config.training import TaskAdamW
from pipeline.errors import CheckpointError
from pipeline.model.host_copies import on_host
from pipeline.optim.fused_adam import ADAM_STATE
from pipeline.optim.lamb import Lamb
from pipeline.optim.loss_scale import LossScale
from pipeline.optim.muon import MUON_STATE, Muon
from pipeline.optim.stable_adam_w import StableAdamW

LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
WORDS = "embeddings.words.weight"
CHAIN = "tag_chain."
SCALE = "loss_scale."
"""Beginning of the names of a loss scale's state."""
CHAIN_RATE = 100.0
"""Share of the learning rate for the scores of a CRF, which start at 0 and must grow to the size of logits.

Chosen by F1 on CoNLL-2003's development set after 3 epochs of 2,000 sentences with a 3-layer encoder of width 128: 41.2
and 43.0 with share 1, 42.4 and 44.2 with 10, 45.6 and 45.7 with 100. Two seeds, too few for a conclusion,
and these scores then had weight decay, which they do not have now.
"""
FUSED = re.compile(r"\.qkv\.weight$")  # query, key and value stacked; published models have three matrices


def _has_weight_decay(name: str, parameter: nn.Parameter) -> bool:
    """Return whether weight decay applies to a parameter.

    True for matrices, False for biases and LayerNorm parameters (Devlin et al. 2019; google-research/bert), and for the
    scores of a CRF.
    """
    return parameter.ndim > 1 and not name.startswith(CHAIN)


def _layers_above(name: str, layers: int) -> int:
    """Return the distance of a parameter from the heads.

    It is 0 for pooler and heads, 1 for the top layer, `layers` for the lowest layer, and `layers` + 1 for embeddings,
    also of relative positions, and their projection.
    """
    if match := LAYER.search(name):
        return layers - int(match[1])
    return layers + 1 if any(part in name for part in ("embeddings.", "projection.", "encoder.relative.")) else 0


def _trainable_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the trainable parameters with their names."""
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]


def _parameter_groups(chosen: settings.AdamW, module: nn.Module) -> list[dict[str, Any]]:
    """Return groups of trainable parameters; tied parameters appear once.

    The parameters of a group have the same weight decay, the same share of the learning rate, and the same number of
    stacked matrices. With Muon, the matrices of layers have groups of their own, with `muon` set. With LAMB, groups
    whose parameters may have weight decay have `scaled` set.
    """
    layers = 1 + max(
        (int(match[1]) for name, _ in module.named_parameters() if (match := LAYER.search(name))), default=-1
    )
    layer_decay = 1.0 if chosen.layer_decay is None else chosen.layer_decay
    words_share = 1.0 if chosen.word_embeddings_rate is None else chosen.word_embeddings_rate
    groups: dict[tuple[float, float, int, str], list[nn.Parameter]] = {}
    for name, parameter in _trainable_parameters(module):
        decays = _has_weight_decay(name, parameter)
        share = layer_decay ** _layers_above(name, layers) * (words_share if name.endswith(WORDS) else 1.0)
        share *= CHAIN_RATE if name.startswith(CHAIN) else 1.0
        of_muon = isinstance(chosen, settings.Muon) and parameter.ndim == 2 and LAYER.search(name) is not None
        mark = "muon" if of_muon else "scaled" if isinstance(chosen, settings.Lamb) and decays else ""
        key = chosen.weight_decay if decays else 0.0, share, 3 if FUSED.search(name) else 1, mark
        groups.setdefault(key, []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "rate_share": share, "matrices": matrices}
        | ({mark: True} if mark else {})
        for (decay, share, matrices, mark), parameters in groups.items()
    ]


def _adam_w(chosen: settings.AdamW, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    betas, on_gpu = (chosen.beta1, chosen.beta2), groups[0]["params"][0].is_cuda
    return torch.optim.AdamW(
        groups, lr=chosen.learning_rate, betas=betas, eps=chosen.epsilon, fused=True, capturable=on_gpu
    )


def _lamb(chosen: settings.AdamW, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return Lamb(groups, lr=chosen.learning_rate, betas=(chosen.beta1, chosen.beta2), eps=chosen.epsilon)


def _stable_adam_w(chosen: settings.AdamW, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return StableAdamW(groups, lr=chosen.learning_rate, betas=(chosen.beta1, chosen.beta2), eps=chosen.epsilon)


def _muon(chosen: settings.Muon, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    betas = (chosen.beta1, chosen.beta2)
    return Muon(groups, lr=chosen.learning_rate, betas=betas, eps=chosen.epsilon, momentum=chosen.momentum)


OPTIMIZERS: dict[type, Callable[..., torch.optim.Optimizer]] = {
    settings.AdamW: _adam_w,
    TaskAdamW: _adam_w,
    settings.Lamb: _lamb,
    settings.StableAdamW: _stable_adam_w,
    settings.Muon: _muon,
}


def build_optimizer(chosen: settings.AdamW, module: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser of the module's parameters.

    Each group has a `rate_share`. At every step, `set_rates` multiplies the learning rate by this share.
    """
    return OPTIMIZERS[type(chosen)](chosen, _parameter_groups(chosen, module))


def set_rates(optimizer: Any, rate: float) -> None:
    """Give each group its share of the learning rate. On a GPU, the rates are tensors, which a recorded step reads."""
    groups = optimizer.param_groups
    device = groups[0]["params"][0].device
    if device.type == "cpu":
        for group in groups:
            group["lr"] = rate * group["rate_share"]
        return
    if getattr(optimizer, "rates", None) is None:
        # Filled one by one, since the host would wait for a copy.
        optimizer.shares = torch.stack([torch.full((), group["rate_share"], device=device) for group in groups])
        optimizer.rates = torch.empty_like(optimizer.shares)
        for group, own in zip(groups, optimizer.rates.unbind(), strict=True):
            group["lr"] = own
    torch.mul(optimizer.shares, rate, out=optimizer.rates)


def optimizer_tensors(optimizer: Any, module: nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the optimiser's state on the host, as {"PARAMETER.STATE": tensor}; empty before the first step.

    STATE is one of exp_avg, exp_avg_sq and step or, for Muon's matrices, momentum_buffer. The names of a
    loss scale's state begin with SCALE.
    """
    scale: LossScale | None = getattr(optimizer, "loss_scale", None)
    tensors = {f"{SCALE}{name}": value for name, value in vars(scale).items()} if scale else {}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}.{key}"] = value
    return on_host(tensors)


def load_optimizer(
    optimizer: Any, module: nn.Module, tensors: dict[str, torch.Tensor], *, complete: bool = True
) -> None:
    """Load the tensors of `optimizer_tensors`. Raises CheckpointError if a tensor is missing or of another shape.

    If `complete` is False, a parameter that never had a gradient may have no tensors at all. Such a parameter starts
    without state. Without the tensors of a loss scale, the scale starts anew.
    """
    if saved := {name.removeprefix(SCALE): value for name, value in tensors.items() if name.startswith(SCALE)}:
        optimizer.loss_scale = LossScale(next(module.parameters()).device)
        optimizer.loss_scale.load(saved)
    groups = [group for group in optimizer.param_groups if group.get("muon")]
    matrices = {id(parameter) for group in groups for parameter in group["params"]}
    for name, parameter in _trainable_parameters(module):
        keys = MUON_STATE if id(parameter) in matrices else ADAM_STATE
        if not complete and not any(f"{name}.{key}" in tensors for key in keys):
            continue
        state = {}
        for key in keys:
            value = tensors.get(f"{name}.{key}")
            if value is None or (key != "step" and value.shape != parameter.shape):
                raise CheckpointError(
                    f"optimizer.safetensors: {name}.{key} is missing or has another shape than the parameter's "
                    f"{tuple(parameter.shape)}"
                )
            state[key] = value.to(parameter.device) if key != "step" or parameter.is_cuda else value
        optimizer.state[parameter] = state
