import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batch import Batch
from pipeline.model import attention as attention_module
from pipeline.model.attention import attention, group_lengths, has_kernel, layout_of
from pipeline.model.windows import band, windowed_attention


def flat_batch(lengths: list[int]) -> Batch:
    positions = torch.cat([torch.arange(n) for n in lengths])
    return Batch(
        ids_T=torch.zeros_like(positions),
        segments_T=torch.zeros_like(positions),
        positions_T=positions,
        offsets=torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32),
        maximum_length=max(lengths),
    )


def one_by_one(qkv: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """The formula, token by token and head by head."""
    out, start = torch.empty_like(qkv[:, 0]), 0
    for length in lengths:
        q, k, v = qkv[start : start + length].unbind(1)
        for head in range(qkv.shape[2]):
            for t in range(length):
                scores = torch.stack(
                    [torch.dot(q[t, head], k[s, head]) / math.sqrt(qkv.shape[3]) for s in range(length)]
                )
                out[start + t, head] = (scores.exp() / scores.exp().sum()) @ v[:, head]
        start += length
    return out


def test_layout_by_hand():
    layout = layout_of(flat_batch([2, 3, 1]))
    assert layout.offsets.tolist() == [0, 2, 5, 6]
    assert layout.maximum_length == 3 and layout.order_T is None
    (layout,) = layout.groups
    assert (layout.sequences, layout.maximum_length) == (3, 3)
    assert layout.slots_T.tolist() == [0, 1, 3, 4, 5, 6]
    assert layout.key_mask.tolist() == [[[[True, True, False]]], [[[True, True, True]]], [[[True, False, False]]]]


def test_sequences_of_one_length_need_no_mask():
    (layout,) = layout_of(flat_batch([3, 3])).groups
    assert layout.key_mask is None
    assert layout.slots_T.tolist() == [0, 1, 2, 3, 4, 5]


def test_groups_by_hand(monkeypatch):
    # 3 sequences of up to 2 and 2 of 5 tokens: one group has 5 * 25 = 125 scores, two have 3 * 4 + 2 * 25 = 62, three 1
    # + 2 * 4 + 50 = 59.
    lengths = np.array([5, 2, 1, 5, 2])
    for cost, ends in ((64, [5]), (62, [2, 5]), (4, [2, 5]), (2, [1, 2, 5])):
        monkeypatch.setattr(attention_module, "GROUP_COST", cost)
        assert group_lengths(lengths) == ends
    monkeypatch.setattr(attention_module, "GROUP_COST", 4)
    layout = layout_of(flat_batch(lengths.tolist()))
    assert layout.order_T.tolist() == [5, 6, 7, 13, 14, 0, 1, 2, 3, 4, 8, 9, 10, 11, 12]
    assert [group.slots_T.tolist() for group in layout.groups] == [[0, 1, 2, 4, 5], list(range(10))]
    assert (
        layout.groups[0].key_mask.squeeze().tolist() == [[True, True], [True, False], [True, True]]
        and layout.groups[1].key_mask is None
    )


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 500))
def test_no_grouping_by_length_costs_less(lengths, cost):
    def of(ends: tuple[int, ...]) -> int:
        groups = np.searchsorted(ends, lengths)
        return sum(
            (groups == number).sum() * max(n for n, g in zip(lengths, groups, strict=True) if g == number) ** 2 + cost
            for number in set(groups.tolist())
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_module, "GROUP_COST", cost)
        found = of(tuple(group_lengths(np.array(lengths))))
    sizes = sorted(set(lengths))
    others = [
        (*chosen, sizes[-1])
        for count in range(min(3, len(sizes)))
        for chosen in itertools.combinations(sizes[:-1], count)
    ]
    assert found <= min(of(ends) for ends in others)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 99))
def test_groups_change_nothing(lengths, seed):
    qkv = torch.randn(sum(lengths), 3, 2, 4, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    weights = torch.randn(sum(lengths), 2, 4, generator=torch.Generator().manual_seed(seed + 1))
    found = []
    for cost in (1, 1 << 16):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention_module, "GROUP_COST", cost)
            out = attention(qkv, layout_of(flat_batch(lengths)), 0.0)
        found.append((out, *torch.autograd.grad((out * weights).sum(), qkv)))
    torch.testing.assert_close(*found, atol=1e-6, rtol=1e-5)


def test_one_head_of_width_one_by_hand():
    # Two tokens with q = 1, k = 0 and ln 3, v = 4 and 8: weights 1/4 and 3/4. The neighbour of one token sees itself.
    qkv = torch.tensor([[1.0, 0.0, 4.0], [1.0, math.log(3), 8.0], [1.0, 50.0, 100.0]]).view(3, 3, 1, 1)
    assert attention(qkv, layout_of(flat_batch([2, 1])), 0.0).flatten().tolist() == pytest.approx([7.0, 7.0, 100.0])


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([1, 2, 8]),
    st.integers(0, 99),
)
def test_equals_the_formula(lengths, heads, width, seed):
    qkv = torch.randn(sum(lengths), 3, heads, width, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        attention(qkv, layout_of(flat_batch(lengths)), 0.0), one_by_one(qkv, lengths), atol=1e-5, rtol=1e-4
    )


def test_gradients_are_those_of_finite_differences():
    qkv = torch.randn(6, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    layout = layout_of(flat_batch([2, 3, 1]))
    assert torch.autograd.gradcheck(lambda x: attention(x, layout, 0.0), (qkv,))


def test_dropout_keeps_the_mean_of_what_is_gathered():
    qkv = torch.zeros(64, 3, 4, 16)
    qkv[:, 2] = 1.0
    layout = layout_of(flat_batch([64]))
    torch.manual_seed(0)
    out = attention(qkv, layout, 0.25)
    assert out.mean().item() == pytest.approx(1.0, abs=0.02)
    # Each output is the mean of 64 values that are 0 or 4/3.
    assert out[:, :, 0].std().item() == pytest.approx(math.sqrt(0.25 / 0.75 / 64), rel=0.25)


def test_the_kernel_is_for_cuda_only():
    assert not has_kernel(torch.zeros(4, 3, 1, 64, dtype=torch.bfloat16), 0.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_cuda_kernel_equals_the_padded_path(dtype):
    lengths = [5, 128, 1, 77]
    qkv = torch.randn(sum(lengths), 3, 4, 64, generator=torch.Generator().manual_seed(0))
    ours = qkv.to("cuda", dtype).requires_grad_()
    if not has_kernel(ours, 0.0):
        pytest.skip("needs compute capability 8.0")
    expected = qkv.requires_grad_()
    out = attention(ours, layout_of(flat_batch(lengths).to("cuda")), 0.0)
    wanted = attention(expected, layout_of(flat_batch(lengths)), 0.0)
    torch.testing.assert_close(out.float().cpu(), wanted, atol=2e-2, rtol=2e-2)
    out.float().square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(ours.grad.float().cpu(), expected.grad, atol=5e-2, rtol=5e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_float32_on_cuda_equals_the_cpu():
    qkv = torch.randn(12, 3, 2, 16, generator=torch.Generator().manual_seed(0))
    lengths = [5, 1, 6]
    out = attention(qkv.cuda(), layout_of(flat_batch(lengths).to("cuda")), 0.0)
    torch.testing.assert_close(out.cpu(), attention(qkv, layout_of(flat_batch(lengths)), 0.0), atol=1e-4, rtol=1e-4)


LENGTHS = [5, 64, 1, 37]
DROPPED = 0.25
Attend = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]
"""Queries, keys and values (T, 3, H, D) and a seed -> outputs (T, H, D) and the gradient of the inputs."""


def attend_on_cuda(mode: str, reach: int | None, heads: int, width: int) -> Attend:
    """Return a function that computes attention with dropout by the kernel, eager, compiled or as a CUDA graph.

    The gradient is of the sum of all outputs' squares.
    """
    layout = layout_of(flat_batch(LENGTHS).to("cuda"), for_compiled=mode == "compiled")
    layout = layout if reach is None else replace(layout, band=band(layout, sum(LENGTHS), reach))
    function = partial(attention if reach is None else windowed_attention, layout=layout, dropout_probability=DROPPED)
    function = torch.compile(function, fullgraph=True) if mode == "compiled" else function
    inputs = torch.zeros(sum(LENGTHS), 3, heads, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def compute() -> tuple[torch.Tensor, torch.Tensor]:
        out = function(inputs)
        return out.detach(), torch.autograd.grad(out.float().square().sum(), inputs)[0]

    recorded = None
    if mode == "recorded":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded = compute()

    def attend(qkv: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(seed)
        with torch.no_grad():
            inputs.copy_(qkv)
        if recorded is None:
            out, gradient = compute()
        else:
            graph.replay()
            out, gradient = recorded
        return out.float().cpu(), gradient.float().cpu()

    return attend


def with_weights(qkv: torch.Tensor, factors: list[torch.Tensor], reach: int | None) -> torch.Tensor:
    """Return attention outputs (T, H, D) with the weights of each sequence multiplied by its factors (H, S, S)."""
    outputs = []
    for part, factor in zip(qkv.split(LENGTHS), factors):
        q, k, v = part.permute(1, 2, 0, 3)
        positions = torch.arange(len(part))
        far = (positions[:, None] - positions).abs() > (len(part) if reach is None else reach)
        weights = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(far, -math.inf).softmax(-1)
        outputs.append(((weights * factor) @ v).transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("mode", ["eager", "compiled", "recorded"])
@pytest.mark.parametrize("reach", [None, 8])
def test_the_cuda_kernel_drops_weights_forward_and_backward(mode: str, reach: int | None) -> None:
    """Values that are unit vectors show the weights, and with them what a seed drops."""
    heads, width = 4, 64
    qkv = torch.randn(sum(LENGTHS), 3, heads, width, generator=torch.Generator().manual_seed(0)).bfloat16()
    if not has_kernel(qkv.cuda(), DROPPED):
        pytest.skip("needs compute capability 8.0")
    attend = attend_on_cuda(mode, reach, heads, width)

    def kept(seed: int) -> list[torch.Tensor]:
        """Return for each sequence which of its weights (H, S, S) a seed keeps."""
        shown = qkv.clone()
        shown[:, 2] = torch.cat([torch.eye(length, width) for length in LENGTHS])[:, None]
        return [part.transpose(0, 1)[..., : len(part)] > 0 for part in attend(shown, seed)[0].split(LENGTHS)]

    masks, others = kept(0), kept(1)
    assert all(torch.equal(mask, again) for mask, again in zip(masks, kept(0)))
    assert not torch.equal(masks[1], others[1])
    seen = torch.ones(64, 64, dtype=torch.bool).tril(reach or 64).triu(-(reach or 64)).expand(heads, 64, 64)
    share = masks[1][seen].float().mean().item()
    assert share == pytest.approx(1 - DROPPED, abs=4 * math.sqrt(DROPPED * (1 - DROPPED) / seen.sum().item()) + 1 / 256)

    expected = qkv.float().requires_grad_()
    wanted = with_weights(expected, [mask / (1 - DROPPED) for mask in masks], reach)
    wanted.square().sum().backward()
    out, gradient = attend(qkv, 0)
    torch.testing.assert_close(out, wanted.detach(), atol=3e-2, rtol=3e-2)
    difference = (gradient - expected.grad).norm() / expected.grad.norm()
    assert difference < 2e-2
    # With what another seed drops, the gradient is another one.
    other = qkv.float().requires_grad_()
    with_weights(other, [mask / (1 - DROPPED) for mask in others], reach).square().sum().backward()
    assert (gradient - other.grad).norm() / other.grad.norm() > 0.2
