"""The Triton kernel of the loss over the vocabulary: on a GPU, else by Triton's interpreter.

Without a GPU: `pip install triton`, then `TRITON_INTERPRET=1 pytest tests/unit/model/test_vocabulary_kernel.py`.
"""

import os

import pytest
import torch
from torch.nn import functional as F

from pipeline.model import vocabulary_loss
from pipeline.model.heads import MaskedTokenHead
from pipeline.presets.table import PRESETS

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu" and "TRITON_INTERPRET" not in os.environ:
    pytest.skip("needs a CUDA device, or Triton and TRITON_INTERPRET=1", allow_module_level=True)
vocabulary_kernel = pytest.importorskip("pipeline.model.vocabulary_kernel")

ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}
"""Number format -> largest error of a gradient; the interpreter rounds bfloat16 towards 0."""


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("block", [64, 128, 32_768])
def test_losses_and_gradients_are_those_of_cross_entropy(
    monkeypatch: pytest.MonkeyPatch, block: int, dtype: torch.dtype
) -> None:
    """The last columns are padding, one row is ignored, and the logits are a part of a larger tensor."""
    monkeypatch.setattr(vocabulary_kernel, "BLOCK", block)
    random = torch.Generator().manual_seed(0)
    memory = (6 * torch.randn(9, 192, generator=random)).to(dtype)
    memory[:, 187:] = -torch.inf
    labels = torch.randint(0, 187, (7,), generator=random)
    labels[:3] = torch.tensor([186, -100, 0])
    wide = memory[1:8].float().requires_grad_()
    expected = F.cross_entropy(wide, labels, ignore_index=-100, reduction="sum")
    expected.backward()

    memory = memory.to(DEVICE)
    before = memory[[0, 8]].clone()
    loss = vocabulary_kernel.to_gradients(memory[1:8], labels.to(DEVICE))
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert (memory[1:8].cpu().float() - wide.grad).abs().max() <= ROUNDING[dtype]
    assert not memory[2].any(), "the ignored row"
    assert memory[[0, 8]].equal(before), "rows of others"


def test_no_rows_lose_nothing() -> None:
    labels = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    assert vocabulary_kernel.to_gradients(torch.zeros(0, 64, device=DEVICE), labels).item() == 0


def test_a_label_of_no_chance_at_all_has_a_finite_loss() -> None:
    logits, labels = torch.tensor([[200.0, 0.0]], device=DEVICE), torch.tensor([1], device=DEVICE)
    assert vocabulary_kernel.to_gradients(logits, labels).item() == pytest.approx(200)


def test_the_head_with_the_kernel_is_the_head_without(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    head = MaskedTokenHead(PRESETS["bert-tiny"].model, 1_000).to(DEVICE)
    hidden = torch.randn(40, 128, device=DEVICE, requires_grad=True)
    words, labels = torch.randn(1_000, 128, device=DEVICE, requires_grad=True), torch.arange(40, device=DEVICE)
    labels[5] = -100
    parameters, found = [hidden, words, *head.parameters()], []
    for kernel in (vocabulary_kernel.to_gradients, None):
        monkeypatch.setattr(vocabulary_loss, "_kernel", lambda *key, kernel=kernel: kernel)
        loss = head.loss(hidden, words, labels, some_ignored=True)
        found.append((loss, *torch.autograd.grad(loss, parameters)))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)
