import math

import pytest
import torch
from torch import nn

from pipeline.config.training import AdamW
from pipeline.errors import CheckpointError
from pipeline.train.optim import build_optimizer, load_optimizer, optimizer_tensors


def step(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    module(torch.ones(1, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def test_one_step_by_hand() -> None:
    # A single weight w = 1 with gradient 4: m = 0.4, v = 0.016, both bias-corrected to 4 and 16, so the step is
    # rate * (4 / (sqrt(16) + eps) + decay * w).
    weight = nn.Linear(1, 1, bias=False)
    weight.weight.data.fill_(1.0)
    optimizer = build_optimizer(AdamW(learning_rate=0.1, weight_decay=0.5, epsilon=1e-6), weight)
    (weight(torch.ones(1, 1)) * 4).sum().backward()
    optimizer.step()
    assert weight.weight.item() == pytest.approx(1.0 - 0.1 * 0.5 * 1.0 - 0.1 * 4 / (math.sqrt(16) + 1e-6), rel=1e-6)


def test_biases_and_layer_norms_do_not_decay() -> None:
    model = module()
    decayed, free = (group["params"] for group in build_optimizer(AdamW(), model).param_groups)
    assert [p.shape for p in decayed] == [(4, 3), (2, 4)]
    assert [p.shape for p in free] == [(4,), (4,), (4,), (2,)]


def test_a_restored_optimiser_goes_on_as_if_never_stopped() -> None:
    ours, theirs = module(), module()
    one, other = build_optimizer(AdamW(learning_rate=0.01), ours), build_optimizer(AdamW(learning_rate=0.01), theirs)
    for _ in range(3):
        step(ours, one)
    theirs.load_state_dict(ours.state_dict())
    load_optimizer(other, theirs, optimizer_tensors(one, ours))
    step(ours, one)
    step(theirs, other)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_a_missing_or_misshapen_tensor_is_refused() -> None:
    model = module()
    optimizer = build_optimizer(AdamW(), model)
    step(model, optimizer)
    tensors = optimizer_tensors(optimizer, model)
    with pytest.raises(CheckpointError, match="2.bias.exp_avg is missing or has another shape"):
        load_optimizer(optimizer, model, tensors | {"2.bias.exp_avg": torch.zeros(3)})
    del tensors["0.weight.step"]
    with pytest.raises(CheckpointError, match="0.weight.step is missing"):
        load_optimizer(optimizer, model, tensors)
