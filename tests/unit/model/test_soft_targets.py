"""The loss on soft targets: values and gradients by hand, in parts as a whole, with a padded vocabulary."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.model import soft_targets, vocabulary_loss
from pipeline.model.soft_targets import Output, soft_target_loss

LN3 = math.log(3)


def made(tokens: int, entries: int, width: int, seed: int) -> Output:
    random = torch.Generator().manual_seed(seed)
    shapes = ((tokens, width), (entries, width), (entries,))
    return Output(*(torch.randn(shape, generator=random, requires_grad=True) for shape in shapes))


def logits(output: Output) -> Tensor:
    return F.linear(*output)


def test_loss_and_gradient_by_hand() -> None:
    # Student logits (0, 2 ln 3) and the teacher's (2 ln 3, 0): at temperature 2 the shares are (1/4, 3/4) and (3/4,
    # 1/4). KL = 3/4 ln 3 + 1/4 ln 1/3 = ln 3 / 2, times 2^2. The gradient of a logit is 2 x (student - teacher).
    nothing = torch.zeros(1, 1)
    student = Output(nothing, torch.zeros(2, 1), torch.tensor([0.0, 2 * LN3], requires_grad=True))
    teacher = Output(nothing, torch.zeros(2, 1), torch.tensor([2 * LN3, 0.0]))
    loss = soft_target_loss(student, teacher, 2.0)
    assert loss.item() == pytest.approx(2 * LN3)
    loss.backward()
    assert student.bias.grad.tolist() == pytest.approx([2 * (1 / 4 - 3 / 4), 2 * (3 / 4 - 1 / 4)])


@pytest.mark.parametrize("entries", [11, 64, 65])
@pytest.mark.parametrize("tokens", [0, 1, 40, 115])
def test_loss_in_parts_equals_the_loss_of_all(tokens: int, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_loss, "LOGIT_BYTES", 40 * 64 * 4)  # 40 rows of 64 entries at once
    student, teacher = made(tokens, entries, 4, 0), made(tokens, entries, 6, 1)
    own, theirs = (F.log_softmax(logits(output) / 3.0, 1) for output in (student, teacher))
    whole = 9.0 * F.kl_div(own, theirs.detach(), reduction="sum", log_target=True)
    loss = soft_target_loss(student, teacher, 3.0)
    torch.testing.assert_close(loss, whole)
    with torch.no_grad():
        torch.testing.assert_close(soft_target_loss(student, teacher, 3.0), whole.detach())
    found, expected = (torch.autograd.grad(2 * value, list(student)) for value in (loss, whole))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert all(tensor.grad is None for tensor in teacher)


def test_memory_is_bounded_by_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_loss, "LOGIT_BYTES", 64 * 4 * 10)
    student, teacher = made(95, 64, 4, 0), made(95, 64, 6, 1)
    with torch.no_grad():
        parts = [len(states) for states, _, _ in soft_targets._parts(student, teacher, 2.0, 64)]
    assert parts == [10] * 9 + [5]


def test_autocast_decides_the_format() -> None:
    student, teacher = made(7, 11, 4, 0), made(7, 11, 6, 1)
    exact = soft_target_loss(student, teacher, 2.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = soft_target_loss(student, teacher, 2.0)
    assert rounded.dtype == torch.float32 and rounded.item() != exact.item()
    assert rounded.item() == pytest.approx(exact.item(), rel=0.02)
    assert torch.autograd.grad(rounded, list(student))[1].dtype == torch.float32
