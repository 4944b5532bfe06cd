"""StableAdamW: steps by hand, and AdamW where gradients are steady."""

import math

import pytest
import torch

from pipeline.config.training import StableAdamW as Settings
from pipeline.optim.build import build_optimizer, load_optimizer, optimizer_tensors
from pipeline.optim.stable_adam_w import StableAdamW


def updated(weights: list[float], gradients: list[list[float]], decay: float = 0.0) -> list[float]:
    """Weights after one step per gradient, at a rate of 0.1 and betas of 0.5 and 0.75."""
    parameter = torch.nn.Parameter(torch.tensor(weights))
    groups = [{"params": [parameter], "weight_decay": decay}]
    optimizer = StableAdamW(groups, lr=0.1, betas=(0.5, 0.75), eps=1e-12)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    return parameter.detach().tolist()


def test_the_first_step_is_adams() -> None:
    # The corrected v is g^2, so RMS is 1 and the rate stays: w - 0.1 (sign(g) + 0.5 w).
    assert updated([3.0, 4.0], [[1.0, -2.0]], 0.5) == pytest.approx([3 - 0.1 * 2.5, 4 - 0.1 * 1.0], rel=1e-6)


def test_a_gradient_that_grows_gets_a_lower_rate() -> None:
    # g = 1, then 3. m = (0.25 * 1 + 0.5 * 3) / 0.75, v = (0.75 * 0.25 * 1 + 0.25 * 9) / 0.4375 = 2.4375 / 0.4375.
    mean, square = 1.75 / 0.75, 2.4375 / 0.4375
    rms = 3 / math.sqrt(square)
    assert rms == pytest.approx(1.270978, rel=1e-6)
    first = 5.0 - 0.1
    assert updated([5.0], [[1.0], [3.0]]) == pytest.approx([first - 0.1 / rms * mean / math.sqrt(square)], rel=1e-6)


def test_the_rate_divides_the_decay_too() -> None:
    mean, square = 1.75 / 0.75, 2.4375 / 0.4375
    rms = 3 / math.sqrt(square)
    first = 5.0 - 0.1 * (1 + 0.5 * 5.0)
    second = first - 0.1 / rms * (mean / math.sqrt(square) + 0.5 * first)
    assert updated([5.0], [[1.0], [3.0]], 0.5) == pytest.approx([second], rel=1e-6)


def test_falling_gradients_are_adams() -> None:
    # g = 3, then 1: RMS is below 1. v = (0.25 * 0.75 * 9 + 0.25) / 0.4375, m = (0.25 * 3 + 0.5) / 0.75.
    square, mean = 1.9375 / 0.4375, 1.25 / 0.75
    assert updated([5.0], [[3.0], [1.0]]) == pytest.approx([4.9 - 0.1 * mean / math.sqrt(square)], rel=1e-6)


def test_gradients_of_zero_change_nothing() -> None:
    assert updated([1.0, 2.0], [[0.0, 0.0]]) == [1.0, 2.0]


def test_a_skipped_step_changes_nothing_and_the_scale_divides() -> None:
    parameters = [torch.nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2)]
    ours, other = (StableAdamW([{"params": [one]}], lr=0.1, betas=(0.5, 0.75), eps=1e-12) for one in parameters)
    ours.found_inf, ours.grad_scale = torch.tensor(1.0), torch.tensor(1.0)
    parameters[0].grad = torch.tensor([math.nan, 1.0])
    ours.step()
    assert parameters[0].tolist() == [1.0, 2.0] and ours.state[parameters[0]]["step"] == 0
    ours.found_inf, ours.grad_scale = torch.tensor(0.0), torch.tensor(2.0)
    for gradients in ([1.0, -1.0], [3.0, 1.0]):
        parameters[0].grad, parameters[1].grad = 2 * torch.tensor(gradients), torch.tensor(gradients)
        ours.step(), other.step()
    assert torch.equal(parameters[0], parameters[1])


def test_each_matrix_of_a_fused_one_has_its_own_rate() -> None:
    calm, wild = [[1.0], [1.0]], [[1.0], [9.0]]
    fused = torch.nn.Parameter(torch.tensor([[5.0], [5.0]]))
    optimizer = StableAdamW([{"params": [fused], "matrices": 2}], lr=0.1, betas=(0.5, 0.75), eps=1e-12)
    for one, other in zip(calm, wild):
        fused.grad = torch.tensor([one, other])
        optimizer.step()
    alone = [updated([5.0], gradients)[0] for gradients in (calm, wild)]
    assert fused.flatten().tolist() == pytest.approx(alone, rel=1e-6)


def test_a_restored_one_goes_on_as_if_never_stopped(training, tiny_config) -> None:
    modules = [training.module(tiny_config) for _ in range(2)]
    optimizers = [build_optimizer(Settings(learning_rate=0.01), module) for module in modules]
    for step in range(4):
        if step == 3:
            modules[1].load_state_dict(modules[0].state_dict())
            load_optimizer(optimizers[1], modules[1], optimizer_tensors(optimizers[0], modules[0]))
        for module in modules if step == 3 else modules[:1]:
            for place, parameter in enumerate(module.parameters()):
                parameter.grad = (parameter.detach() + place).cos()
        for optimizer in optimizers if step == 3 else optimizers[:1]:
            optimizer.step()
    assert all(torch.equal(one, other) for one, other in zip(*(module.parameters() for module in modules), strict=True))
