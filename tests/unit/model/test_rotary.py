"""Rotary positions: rotations by hand, and scores that depend on distances alone."""

import math

import torch

from pipeline.model.rotary import rotate, rotation


def qkv_of(*numbers: float) -> torch.Tensor:
    """One token with one head, whose query, key and value are these numbers."""
    return torch.tensor(numbers).view(1, 1, 1, -1).expand(1, 3, 1, -1)


def test_one_pair_turns_by_its_position_in_radians() -> None:
    turned = rotate(qkv_of(1.0, 0.0), rotation(torch.tensor([2]), 2, 10_000.0))
    torch.testing.assert_close(turned[0, :2, 0], torch.tensor([[math.cos(2.0), math.sin(2.0)]] * 2))
    assert turned[0, 2, 0].tolist() == [1.0, 0.0]  # values stay


def test_later_pairs_turn_more_slowly() -> None:
    # Width 4 and theta 100: pair 0 (numbers 0 and 2) turns by 3, pair 1 (numbers 1 and 3) by 3 * 100^(-1/2) = 0.3.
    turned = rotate(qkv_of(1.0, 1.0, 0.0, 0.0), rotation(torch.tensor([3]), 4, 100.0))
    expected = [math.cos(3.0), math.cos(0.3), math.sin(3.0), math.sin(0.3)]
    torch.testing.assert_close(turned[0, 0, 0], torch.tensor(expected))


def test_scores_depend_on_the_distance_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(1, 3, 2, 8, generator=generator, dtype=torch.float64).expand(4, 3, 2, 8)

    def scores(first: int) -> torch.Tensor:
        q, k, _ = rotate(tokens, rotation(torch.arange(first, first + 4), 8, 10_000.0)).permute(1, 2, 0, 3)
        return q @ k.transpose(-1, -2)

    torch.testing.assert_close(scores(0), scores(37), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(scores(0)[0, 0], scores(0)[0, 0, :1].expand(4, 4), atol=1e-2)


def test_angles_are_float32_and_the_dtype_stays() -> None:
    turn = rotation(torch.tensor([8_191]), 64, 160_000.0)
    assert turn.cosines_T.dtype == turn.sines_T.dtype == torch.float32
    assert turn.cosines_T[0, 0, 0, 0].item() == torch.tensor(8_191.0).cos().item()
    assert rotate(torch.ones(1, 3, 1, 64, dtype=torch.bfloat16), turn).dtype == torch.bfloat16
