"""Disentangled attention: scores from the contents of two tokens and from their distance (DeBERTa, He et al. 2021).

Shapes: T tokens of the batch, N sequences, S length of a group's longest sequence, H heads, D width of a head, W width
of the model, R relative positions.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.model.attention import Layout, in_groups, weighted_values

TERMS = 3
"""Products that are added to a score: content to content, content to position, position to content."""


@dataclass(frozen=True, kw_only=True)
class Distances:
    """Relative positions for the distances between tokens: -span to span - 1."""

    span: int
    """Number of relative positions in each direction. A longer distance has the last relative position."""
    farthest: int | None = None
    """Distance from which all distances have the last relative position. Distances up to span / 2 then have their own
    relative position, and longer ones share logarithmic buckets (microsoft/DeBERTa: make_log_bucket_position). None:
    each distance below `span` has its own relative position.
    """

    def near(self, length: int) -> int:
        """Return how many relative positions in each direction a sequence of this length needs at most."""
        return min(length, self.span) if self._never_grows else self.span

    @property
    def _never_grows(self) -> bool:
        """Whether no distance has a bucket with a larger number: the logarithm's slope is at most 1 from its start."""
        middle = self.span // 2
        return self.farthest is None or (middle - 1) / middle <= math.log((self.farthest - 1) / middle)

    def rows(self, distances: Tensor, near: int) -> Tensor:
        """Return the rows of int64 distances in a table of the relative positions -near to near - 1."""
        return (self._positions(distances) + near).clamp(0, 2 * near - 1)

    def _positions(self, distances: Tensor) -> Tensor:
        if self.farthest is None:
            return distances
        middle = self.span // 2
        longer = distances.abs().clamp(min=middle)
        logarithm = torch.log(longer / middle) / math.log((self.farthest - 1) / middle)
        bucket = (logarithm * (middle - 1)).ceil().long() + middle
        return torch.where(distances.abs() <= middle, distances, bucket * distances.sign())


def disentangled_attention(
    qkv: Tensor, relative_R: Tensor, distances: Distances, where: Layout, dropout_probability: float
) -> Tensor:
    """Return the attention output of every token over its own sequence, scaled by 1 / sqrt(3 D).

    Maps queries, keys and values qkv (T, 3, H, D) to (T, H, D) of the same dtype. `relative_R` (R, 2, H, D) holds
    queries and keys of the relative positions -R / 2 to R / 2 - 1; R / 2 must be `distances.near` of the longest
    sequence. The score of query i and key j is the sum of three products: query i with key j, query i with the key of
    the distance i - j, and key j with the query of the distance i - j. No flash kernel computes such scores.
    """
    scale, near = 1 / math.sqrt(TERMS * qkv.shape[-1]), relative_R.shape[0] // 2
    queries_R, keys_R = relative_R.unbind(1)

    def attend(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        S = q.shape[-2]
        steps = torch.arange(2 * S, device=q.device) - (S - 1)
        near_keys = keys_R[distances.rows(-steps, near)].permute(1, 2, 0)
        near_queries = queries_R[distances.rows(steps, near)].permute(1, 2, 0)
        # Scaling before the products keeps float16 from overflowing.
        q, near_queries = q * scale, near_queries * scale
        scores = q @ k.transpose(-1, -2) + shifted(q @ near_keys) + shifted(k @ near_queries).transpose(-1, -2)
        return weighted_values(scores, v, key_mask, dropout_probability)

    return in_groups(qkv, where, attend)


def shifted(products: Tensor) -> Tensor:
    """Return (..., S, S) from (..., S, 2 S): entry [i, j] is entry [i, S - 1 - i + j] of the input.

    If column c of the input stands for the distance S - 1 - c, entry [i, j] of the output stands for i - j. Both
    directions only move memory, so gradients are the same in every run.
    """
    S = products.shape[-2]
    return products.flatten(-2)[..., S - 1 :][..., : S * (2 * S - 1)].unflatten(-1, (S, 2 * S - 1))[..., :S]
