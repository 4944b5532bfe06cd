"""Muon and AdamW as one optimiser: which parameters each has, equal to torch's own, clipped, skipped and resumed."""

import math

import pytest
import torch
from torch import nn

from pipeline.config.training import Muon as Settings
from pipeline.errors import CheckpointError
from pipeline.optim.build import build_optimizer, load_optimizer, optimizer_tensors
from pipeline.train.step import update

SETTINGS = Settings(learning_rate=0.01, weight_decay=0.1)


def module_of() -> nn.Module:
    """A layer with a matrix and a bias, an embedding and a head."""
    torch.manual_seed(0)
    return nn.ModuleDict(
        {"layers": nn.ModuleList([nn.Linear(4, 6)]), "embeddings": nn.Embedding(5, 4), "head": nn.Linear(6, 2)}
    )


def set_gradients(module: nn.Module, times: float = 1.0) -> None:
    for place, parameter in enumerate(module.parameters()):
        parameter.grad = times * (3 * parameter.detach() + place).cos()


def weights(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def test_matrices_of_layers_are_muon_s_and_all_others_adam_s() -> None:
    ours, theirs = module_of(), module_of()
    optimizer = build_optimizer(SETTINGS, ours)
    names = {id(parameter): name for name, parameter in ours.named_parameters()}
    muon = {names[id(one)] for group in optimizer.param_groups if group.get("muon") for one in group["params"]}
    assert muon == {"layers.0.weight"}
    matrix = theirs["layers"][0].weight
    decayed = [theirs["embeddings"].weight, theirs["head"].weight]
    plain = [theirs["layers"][0].bias, theirs["head"].bias]
    expected = [
        torch.optim.Muon([matrix], lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=0.01, eps=1e-6
        ),
    ]
    for _ in range(3):
        set_gradients(ours), set_gradients(theirs)
        for one in (optimizer, *expected):
            one.step()
    for found, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)


def test_muon_s_first_update_is_orthogonal_and_as_large_as_adam_s() -> None:
    module = module_of()
    before = module["layers"][0].weight.detach().clone()
    optimizer = build_optimizer(Settings(learning_rate=0.01, weight_decay=0.0), module)
    set_gradients(module)
    optimizer.step()
    change = (before - module["layers"][0].weight.detach()) / 0.01
    # 6 x 4: singular values near 0.2 * sqrt(6), within what five iterations in bfloat16 leave.
    singular = torch.linalg.svdvals(change) / (0.2 * math.sqrt(6))
    assert ((singular > 0.6) & (singular < 1.3)).all()


def test_the_rate_of_a_step_counts_in_both_and_gradients_are_clipped() -> None:
    clipped, plain = module_of(), module_of()
    optimizers = [build_optimizer(SETTINGS, module) for module in (clipped, plain)]
    set_gradients(plain)
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in plain.parameters()]).item()
    set_gradients(plain, 1 / norm)
    set_gradients(clipped)
    for module, optimizer in zip((clipped, plain), optimizers):
        update(optimizer, module, rate=0.005, clip_norm=1.0)
        assert {group["lr"] for group in optimizer.param_groups} == {0.005}
    for found, wanted in zip(clipped.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_step_without_a_finite_gradient_changes_nothing() -> None:
    module = module_of()
    optimizer = build_optimizer(SETTINGS, module)
    set_gradients(module)
    module["head"].bias.grad[0] = math.nan
    before = weights(module)
    update(optimizer, module, rate=0.01, clip_norm=1.0)
    assert all(torch.equal(one, other) for one, other in zip(before, module.parameters()))
    assert not any(value.any() for value in optimizer_tensors(optimizer, module).values())


def test_a_restored_one_goes_on_as_if_never_stopped() -> None:
    first, again = module_of(), module_of()
    optimizers = [build_optimizer(SETTINGS, module) for module in (first, again)]
    for _ in range(3):
        set_gradients(first)
        optimizers[0].step()
    saved = optimizer_tensors(optimizers[0], first)
    assert {name for name in saved if name.startswith("layers.0")} == {
        *("layers.0.weight.momentum_buffer", "layers.0.bias.exp_avg", "layers.0.bias.exp_avg_sq", "layers.0.bias.step"),
    }
    again.load_state_dict(first.state_dict())
    load_optimizer(optimizers[1], again, saved)
    for module, optimizer in zip((first, again), optimizers):
        set_gradients(module)
        optimizer.step()
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), again.parameters(), strict=True))
    with pytest.raises(CheckpointError, match=r"^optimizer.safetensors: layers.0.weight.momentum_buffer is missing"):
        load_optimizer(optimizers[1], again, {name: value for name, value in saved.items() if "momentum" not in name})
