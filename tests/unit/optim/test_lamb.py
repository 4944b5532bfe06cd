import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.config.training import Lamb as LambSettings
from pipeline.optim.build import build_optimizer, load_optimizer, optimizer_tensors
from pipeline.optim.lamb import Lamb


def updated(
    weights: list[list[float]],
    gradients: list[list[list[float]]],
    decay: float,
    matrices: int = 1,
    scaled: bool = True,
) -> torch.Tensor:
    """Weights after one step a gradient, at a rate of 0.1 and betas of 0.5 and 0.75."""
    parameter = torch.nn.Parameter(torch.tensor(weights))
    optimizer = Lamb(
        [{"params": [parameter], "weight_decay": decay, "matrices": matrices, "scaled": scaled}],
        lr=0.1,
        betas=(0.5, 0.75),
        eps=1e-12,
    )
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    return parameter.detach()


def test_two_steps_by_hand() -> None:
    # Step 1: the corrected moments are g and g^2, so r = (1, -1); r + 0.5 w = (2.5, 1), norm 2.692582, that of w is 5:
    # w = (3, 4) - 0.1 * 1.856953 * (2.5, 1).
    assert updated([[3.0, 4.0]], [[[1.0, -2.0]]], 0.5)[0].tolist() == pytest.approx([2.535762, 3.814305], rel=1e-6)
    # Step 2: m = (1.75, -0.5) / 0.75, v = (2.4375, 0.75) / 0.4375, r = (0.988538, -0.509175), r + 0.5 w = (2.256419,
    # 1.397977), norm 2.654386, that of w 4.580285: w - 0.1 * 1.725554 * (2.256419, 1.397977).
    assert updated([[3.0, 4.0]], [[[1.0, -2.0]], [[3.0, 0.0]]], 0.5)[0].tolist() == pytest.approx(
        [2.146404, 3.573076], rel=1e-6
    )


def test_groups_that_are_not_scaled_have_adams_update() -> None:
    update = updated([[3.0, 4.0]], [[[1.0, -2.0]]], 0.0, scaled=False)
    assert update[0].tolist() == pytest.approx([2.9, 4.1], rel=1e-6)


def test_matrices_are_scaled_without_weight_decay_too() -> None:
    module = torch.nn.Linear(2, 1)
    module.load_state_dict({"weight": torch.tensor([[3.0, 4.0]]), "bias": torch.tensor([5.0])})
    optimizer = build_optimizer(LambSettings(learning_rate=0.1, weight_decay=0.0, epsilon=1e-12), module)
    module.weight.grad, module.bias.grad = torch.tensor([[1.0, -2.0]]), torch.tensor([1.0])
    optimizer.step()
    # The update (1, -1) has the norm 1.414214 and the weights have 5: 0.1 * 5 / 1.414214 of it is subtracted.
    assert module.weight[0].tolist() == pytest.approx([3 - 0.353553, 4 + 0.353553], rel=1e-6)
    assert module.bias.tolist() == pytest.approx([4.9], rel=1e-6)


def test_norms_of_zero_leave_the_update_as_it_is() -> None:
    assert updated([[0.0, 0.0]], [[[1.0, -2.0]]], 0.5)[0].tolist() == pytest.approx([-0.1, 0.1], rel=1e-6)
    assert updated([[0.0, 0.0]], [[[0.0, 0.0]]], 0.5)[0].tolist() == [0.0, 0.0]


def test_each_matrix_of_a_fused_one_has_its_own_norm() -> None:
    one, other = [[3.0, 4.0]], [[0.1, 0.2]]
    gradient = [[1.0, -2.0]]
    fused = updated(one + other, [gradient + gradient], 0.5, matrices=2)
    assert torch.equal(fused, torch.cat([updated(one, [gradient], 0.5), updated(other, [gradient], 0.5)]))
    assert not torch.equal(fused, updated(one + other, [gradient + gradient], 0.5))


def test_a_restored_lamb_goes_on_as_if_never_stopped(training, tiny_config) -> None:
    modules = [training.module(tiny_config) for _ in range(2)]
    optimizers = [build_optimizer(LambSettings(learning_rate=0.01), module) for module in modules]

    def step(which: int) -> None:
        for place, parameter in enumerate(modules[which].parameters()):
            parameter.grad = (parameter.detach() + place).cos()
        optimizers[which].step()

    for _ in range(3):
        step(0)
    modules[1].load_state_dict(modules[0].state_dict())
    load_optimizer(optimizers[1], modules[1], optimizer_tensors(optimizers[0], modules[0]))
    before = [parameter.detach().clone() for parameter in modules[0].parameters()]
    step(0)
    step(1)
    for old, one, other in zip(before, *(module.parameters() for module in modules), strict=True):
        assert torch.equal(one, other) and not torch.equal(old, one)


def finite(gradient: list[float]) -> bool:
    return all(map(math.isfinite, gradient))


def test_gradients_are_unscaled_and_non_finite_steps_are_skipped() -> None:
    """As torch's fused AdamW does, without weight decay step for step the same."""
    for nonfinite in (float("nan"), float("inf")):
        ours, theirs = (torch.nn.Parameter(torch.tensor([[3.0, 4.0]])) for _ in range(2))
        lamb = Lamb([{"params": [ours]}], lr=0.1, betas=(0.5, 0.75), eps=1e-8)
        adam = torch.optim.AdamW([theirs], lr=0.1, betas=(0.5, 0.75), eps=1e-8, weight_decay=0.0, fused=True)
        for gradient in ([nonfinite, 1.0], [4.0, -8.0], [1.0, nonfinite], [-6.0, 2.0]):
            before = ours.detach().clone()
            for parameter, optimizer in ((ours, lamb), (theirs, adam)):
                parameter.grad = torch.tensor([gradient])
                optimizer.grad_scale = torch.tensor(4.0)
                optimizer.found_inf = torch.tensor(float(not finite(gradient)))
                optimizer.step()
            assert torch.equal(ours, before) == (not finite(gradient))
            torch.testing.assert_close(ours, theirs)
        for key, value in adam.state[theirs].items():
            torch.testing.assert_close(lamb.state[ours][key], value)


def test_a_skipped_update_does_not_decay_either() -> None:
    parameter = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    lamb = Lamb([{"params": [parameter], "weight_decay": 0.5, "scaled": True}], lr=0.1, betas=(0.5, 0.75), eps=1e-8)
    parameter.grad, lamb.found_inf = torch.tensor([[float("nan"), 1.0]]), torch.tensor(1.0)
    lamb.step()
    assert parameter[0].tolist() == [3.0, 4.0]


def test_a_step_reads_no_number_out_of_a_tensor() -> None:
    """Each would be a wait for the device."""

    class Reads(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            assert func is not torch.ops.aten._local_scalar_dense.default
            return func(*args, **kwargs or {})

    parameters = [torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))]
    groups = [{"params": parameters[:1], "weight_decay": 0.5, "scaled": True}, {"params": parameters[1:]}]
    lamb = Lamb(groups, lr=0.1, betas=(0.5, 0.75), eps=1e-8)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    with Reads():
        lamb.step()
    assert all((parameter < 1).all() for parameter in parameters)
