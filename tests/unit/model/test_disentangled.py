import math

import pytest
import torch

from pipeline.model import attention as attention_module
from pipeline.model.attention import layout_of
from pipeline.model.disentangled import Distances, disentangled_attention, shifted
from tests.unit.model.test_attention import flat_batch

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = Distances(span=6)
BUCKETS = Distances(span=8, farthest=40)
GROWING = Distances(span=16, farthest=20)


def bucket(distance: int, distances: Distances) -> int:
    """The formula of microsoft/DeBERTa for one number; relative positions end at -span and span - 1."""
    found, middle = distance, distances.span // 2
    if distances.farthest is not None and abs(distance) > middle:
        share = math.log(abs(distance) / middle) / math.log((distances.farthest - 1) / middle)
        found = int(math.copysign(math.ceil(share * (middle - 1)) + middle, distance))
    return max(-distances.span, min(distances.span - 1, found))


def one_by_one(qkv: torch.Tensor, table: torch.Tensor, distances: Distances, lengths: list[int]) -> torch.Tensor:
    """The formula, token by token and head by head; `table` (2 span, 2, H, D) has all relative positions."""
    out, start = torch.empty_like(qkv[:, 0]), 0
    for length in lengths:
        q, k, v = qkv[start : start + length].unbind(1)
        for head in range(qkv.shape[2]):
            for i in range(length):
                scores = []
                for j in range(length):
                    query, key = table[bucket(i - j, distances) + distances.span, :, head]
                    products = q[i, head] @ k[j, head] + q[i, head] @ key + k[j, head] @ query
                    scores.append(products / math.sqrt(3 * qkv.shape[3]))
                out[start + i, head] = torch.stack(scores).softmax(0) @ v[:, head]
        start += length
    return out


def rows_of(table: torch.Tensor, distances: Distances, longest: int) -> torch.Tensor:
    near = distances.near(longest)
    return table[distances.span - near : distances.span + near]


def test_buckets_by_hand():
    # Buckets of span 8 and farthest 40: own positions to 4, then ceil(3 log(d / 4) / log(39 / 4)) + 4:
    # d = 5: 3 * 0.2231 / 2.2773 = 0.29 -> 5; d = 9: 1.07 -> 6; d = 18: 1.98 -> 6; d = 19: 2.05 -> 7; d = 40: 8.
    steps = torch.tensor([0, 1, 4, 5, 8, 9, 18, 19, 39, 40, 500])
    assert BUCKETS.rows(steps, 8).tolist() == [8, 9, 12, 13, 13, 14, 14, 15, 15, 15, 15]
    assert BUCKETS.rows(-steps, 8).tolist() == [8, 7, 4, 3, 3, 2, 2, 1, 1, 0, 0]
    assert PLAIN.rows(torch.tensor([-9, -6, -5, 0, 5, 6, 9]), 6).tolist() == [0, 0, 1, 6, 11, 11, 11]


def test_buckets_of_the_published_models():
    # 256 buckets for 512 distances: 128 and below have their own; log(511 / 128) = 1.3843, 127 / 1.3843 = 91.74.
    published = Distances(span=256, farthest=512)
    steps = torch.tensor([128, 129, 256, 511, 512, 4096])
    # 129: 0.71 -> 1; 256: 63.6 -> 64; 511: 127; 512: above
    assert (published.rows(steps, 256) - 256).tolist() == [128, 129, 192, 255, 255, 255]
    assert published.near(100) == 100 and published.near(600) == 256


def test_no_relative_position_is_missing_for_short_sequences():
    for distances in (PLAIN, BUCKETS, GROWING):
        for length in range(1, 45):
            near, steps = distances.near(length), torch.arange(-length + 1, length)
            expected = [bucket(step, distances) + near for step in steps.tolist()]
            assert distances.rows(steps, near).tolist() == expected


def test_shift_by_hand():
    # Column c is the distance 1 - c: row 0 takes the distances 0 and -1, row 1 the distances 1 and 0.
    assert shifted(torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23]])).tolist() == [[11, 12], [20, 21]]
    assert shifted(torch.tensor([[7, 8]])).tolist() == [[7]]


@pytest.mark.parametrize("distances", [PLAIN, BUCKETS, GROWING])
@pytest.mark.parametrize("lengths", [[3], [1, 19, 5]])
def test_formula_and_gradients_for_every_group(lengths, distances):
    random = torch.Generator().manual_seed(len(lengths))
    qkv = torch.randn(sum(lengths), 3, 2, 4, generator=random, requires_grad=True)
    table = torch.randn(2 * distances.span, 2, 2, 4, generator=random, requires_grad=True)
    weights = torch.randn(sum(lengths), 2, 4, generator=random)
    expected = one_by_one(qkv, table, distances, lengths)
    wanted = (expected, *torch.autograd.grad((expected * weights).sum(), (qkv, table)))
    for cost in (1, 1 << 16):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention_module, "GROUP_COST", cost)
            layout = layout_of(flat_batch(lengths))
        out = disentangled_attention(qkv, rows_of(table, distances, max(lengths)), distances, layout, 0.0)
        found = (out, *torch.autograd.grad((out * weights).sum(), (qkv, table)))
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_numbers_stay_finite_and_near(dtype):
    # Contents of 60 to 90 give products of 64 * 75^2 = 360,000, which float16 cannot hold without the scale, and the
    # padding of short sequences gets weight 0.
    lengths, random = [1, 9, 30], torch.Generator().manual_seed(0)
    qkv = torch.randn(40, 3, 2, 64, generator=random)
    qkv[:, :2] = 60 + 30 * torch.rand(40, 2, 2, 64, generator=random)
    table = torch.randn(16, 2, 2, 64, generator=random)
    layout = layout_of(flat_batch(lengths))
    small = qkv.to(dtype).requires_grad_()
    out = disentangled_attention(small, table.to(dtype), BUCKETS, layout, 0.0)
    (gradient,) = torch.autograd.grad(out.float().sum(), small)
    assert out.dtype == dtype and out.isfinite().all() and gradient.isfinite().all()
    # A sequence of one token gets its own value; a mean of values is within their range.
    assert torch.equal(out[0], small[0, 2])
    assert out.abs().max() <= small[:, 2].abs().max()
    moderate = torch.cat([qkv[:, :2] / 40, qkv[:, 2:]], 1)
    exact = disentangled_attention(moderate, table, BUCKETS, layout, 0.0)
    near = disentangled_attention(moderate.to(dtype), table.to(dtype), BUCKETS, layout, 0.0)
    assert (exact - near).abs().max() < (0.2 if dtype == torch.bfloat16 else 0.02)
