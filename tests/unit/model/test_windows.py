"""Local attention on flat batches: equal to full attention with a mask, and linear in length."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.model.attention import attention, layout_of
from pipeline.model.windows import LEAST_BLOCK, band, windowed_attention
from tests.unit.model.test_attention import flat_batch

pytestmark = pytest.mark.usefixtures("one_thread")


def locally(qkv: torch.Tensor, lengths: list[int], reach: int, dropout: float = 0.0) -> torch.Tensor:
    layout = layout_of(flat_batch(lengths))
    layout = replace(layout, band=band(layout, sum(lengths), reach))
    return (attention if layout.band is None else windowed_attention)(qkv, layout, dropout)


def with_mask(qkv: torch.Tensor, lengths: list[int], reach: int) -> torch.Tensor:
    """The formula with a mask of all tokens on all tokens, sequence by sequence."""
    out = []
    for part in qkv.split(lengths):
        q, k, v = part.permute(1, 2, 0, 3)
        places = torch.arange(len(part))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        far = (places[:, None] - places).abs() > reach
        out.append((scores.masked_fill(far, -math.inf).softmax(-1) @ v).transpose(0, 1))
    return torch.cat(out)


def test_a_window_by_hand() -> None:
    # All scores are equal, so a token gets the mean of the values that it sees: itself and one on each side.
    qkv = torch.zeros(6, 3, 1, 1)
    qkv[:, 2, 0, 0] = torch.tensor([1.0, 2.0, 6.0, 10.0, 100.0, 300.0])
    assert locally(qkv, [4, 2], 1).flatten().tolist() == pytest.approx([1.5, 3.0, 6.0, 8.0, 200.0, 200.0])


@given(st.lists(st.integers(1, 150), min_size=1, max_size=5), st.integers(1, 70), st.integers(0, 99))
def test_equals_full_attention_with_a_mask(lengths: list[int], reach: int, seed: int) -> None:
    qkv = torch.randn(sum(lengths), 3, 2, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(locally(qkv, lengths, reach), with_mask(qkv, lengths, reach))


@pytest.mark.parametrize("length", [3, 4, 5, 64, 100])  # below, at and above a reach of 3, a whole block, part of one
def test_gradients_are_those_of_the_masked_formula(length: int) -> None:
    lengths = [length, 2, length]
    qkv = torch.randn(2 * length + 2, 3, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours, theirs = (qkv.clone().requires_grad_() for _ in range(2))
    weights = torch.randn(2 * length + 2, 2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (locally(ours, lengths, 3) * weights).sum().backward()
    (with_mask(theirs, lengths, 3) * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_window_over_all_sequences_needs_no_blocks() -> None:
    layout = layout_of(flat_batch([8, 3]))
    assert band(layout, 11, 7) is None
    assert band(layout, 11, 6) is not None


def test_the_mask_grows_with_the_tokens_and_not_with_their_square() -> None:
    sizes = {}
    for length in (1_000, 4_000):
        made = band(layout_of(flat_batch([length])), length, 64)
        assert made is not None
        sizes[length] = made.mask.numel()
    assert sizes == {1_000: 16 * 64 * 192, 4_000: 63 * 64 * 192}


def test_narrow_windows_get_blocks_of_a_useful_size() -> None:
    made = band(layout_of(flat_batch([100])), 100, 2)
    assert made is not None
    assert made.block == LEAST_BLOCK and made.mask.shape == (4, 1, 32, 96)


def test_dropout_drops_weights_and_keeps_the_mean() -> None:
    qkv = torch.zeros(400, 3, 1, 1)
    qkv[:, 2] = 1.0
    torch.manual_seed(0)
    dropped = locally(qkv, [400], 8, 0.25)
    assert dropped.std() > 0.05 and dropped.mean().item() == pytest.approx(1.0, abs=0.05)


def test_half_precision_has_no_nan() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        qkv = (50 * torch.randn(300, 3, 2, 8, generator=torch.Generator().manual_seed(0))).to(dtype)
        assert locally(qkv, [290, 10], 4).isfinite().all()
