"""The optimiser, and its state as tensors by parameter name."""

import torch
from torch import nn

from pipeline.config.training import AdamW
from pipeline.errors import CheckpointError

STATE = ("exp_avg", "exp_avg_sq", "step")


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay applies: to matrices, not to biases and LayerNorm parameters (Devlin et al. 2019; google-research/bert)."""
    return parameter.ndim > 1


def build_optimizer(settings: AdamW, module: nn.Module) -> torch.optim.AdamW:
    """AdamW over the module's parameters (a tied one counts once), in two groups: decayed and not."""
    parameters = list(module.named_parameters())
    groups = [
        {"params": [p for n, p in parameters if decays(n, p)], "weight_decay": settings.weight_decay},
        {"params": [p for n, p in parameters if not decays(n, p)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=settings.learning_rate, betas=(settings.beta1, settings.beta2), eps=settings.epsilon, fused=True
    )


def optimizer_tensors(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, torch.Tensor]:
    """The optimiser's state as {parameter.state: tensor}, empty before the first step."""
    tensors = {}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}.{key}"] = value.detach().clone().contiguous()
    return tensors


def load_optimizer(optimizer: torch.optim.Optimizer, module: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Put back what optimizer_tensors gave. Raises CheckpointError when a tensor is missing or shaped otherwise."""
    for name, parameter in module.named_parameters():
        state = {}
        for key in STATE:
            value = tensors.get(f"{name}.{key}")
            if value is None or (key != "step" and value.shape != parameter.shape):
                raise CheckpointError(f"optimizer.safetensors: {name}.{key} is missing or has another shape than the parameter's {tuple(parameter.shape)}")
            state[key] = value.to(parameter.device) if key != "step" or parameter.is_cuda else value
        optimizer.state[parameter] = state
