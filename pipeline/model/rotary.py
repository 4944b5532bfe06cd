"""Rotary positions: queries and keys are rotated by angles that grow with their position (Su et al. 2021).

Shapes: T tokens of the batch, H heads, D width of a head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """Cosines and sines of the angles of each token, float32 (T, 1, 1, D / 2)."""

    cosines_T: Tensor
    sines_T: Tensor


def rotation(positions_T: Tensor, width: int, theta: float) -> Rotation:
    """Return the rotation of tokens at these positions (T,), for heads of even width `width`.

    Pair i turns by position * theta^(-2 i / width). Angles are computed in float32, under autocast too.
    """
    pairs = torch.arange(0, width, 2, dtype=torch.float32, device=positions_T.device)
    angles_T = (positions_T[:, None].float() * (1.0 / theta ** (pairs / width)))[:, None, None, :]
    return Rotation(cosines_T=angles_T.cos(), sines_T=angles_T.sin())


def rotate(qkv: Tensor, by: Rotation) -> Tensor:
    """Return queries, keys and values (T, 3, H, D) with rotated queries and keys, in the same dtype.

    Numbers i and i + D / 2 of a head form a pair, as in the published models of Warner et al. 2024.
    """
    first, second = qkv[:, :2].float().chunk(2, -1)
    rotated = torch.cat((first * by.cosines_T - second * by.sines_T, second * by.cosines_T + first * by.sines_T), -1)
    return torch.cat((rotated.to(qkv.dtype), qkv[:, 2:]), 1)
