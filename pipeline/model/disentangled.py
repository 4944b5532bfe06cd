"""Disentangled attention: scores from the contents of two tokens and from their distance (DeBERTa, He et al. 2021).

Shapes: T tokens of the batch, N sequences, S length of a group's longest sequence, H heads, D width of a head, W width
of the model, R relative positions.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline.config.model import Model
from pipeline.config.model_parts import BucketedAttention, DisentangledAttention
from pipeline.model.attention import Layout, in_groups, weighted_values
from pipeline.model.dropout import dropout
from pipeline.model.norm import make_norm

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


def distances_of(settings: Model) -> Distances | None:
    """Return the distances that a model's attention tells apart; None if distances do not enter its scores."""
    part = settings.attention
    if not isinstance(part, DisentangledAttention | BucketedAttention):
        return None
    farthest = part.maximum_distance or settings.maximum_positions
    if isinstance(part, BucketedAttention):
        return Distances(span=part.buckets, farthest=farthest)
    return Distances(span=farthest)


class RelativeEmbeddings(nn.Module):
    """Embeddings of relative positions, which all layers share."""

    def __init__(self, settings: Model, distances: Distances) -> None:
        super().__init__()
        self.distances = distances
        self.table = nn.Embedding(2 * distances.span, settings.width)
        normed = isinstance(settings.attention, BucketedAttention)
        self.norm = make_norm(settings, settings.width) if normed else nn.Identity()

    def forward(self, length: int) -> Tensor:
        """Return the embeddings (R, W) of the relative positions that a sequence of this length may need."""
        near = self.distances.near(length)
        return self.norm(self.table.weight[self.distances.span - near : self.distances.span + near])


class Disentangled(nn.Module):
    """Map hidden states (T, W) to attention outputs (T, W). Subclasses project contents and relative positions."""

    def __init__(self, settings: Model) -> None:
        super().__init__()
        distances = distances_of(settings)
        assert distances is not None
        self.heads, self.distances = settings.heads, distances
        self.dropout, self.hidden_dropout = settings.attention_dropout, settings.hidden_dropout
        self.output = nn.Linear(settings.width, settings.width)

    def forward(self, hidden_T: Tensor, layout: Layout, queries_T: Tensor | None = None) -> Tensor:
        """Return attention outputs (T, W). The queries are those of the states `queries_T` (T, W); None: `hidden_T`."""
        qkv = self.contents(hidden_T)
        if queries_T is not None:
            qkv = torch.cat([self.contents(queries_T)[:, :1], qkv[:, 1:]], 1)
        relative_R = self.positions(layout)
        probability = self.dropout if self.training else 0.0
        gathered = disentangled_attention(qkv, relative_R, self.distances, layout, probability)
        return self.output(gathered.reshape(hidden_T.shape))

    def scores(self, hidden_T: Tensor, layout: Layout) -> Tensor:
        """Return the scores (H, T, T) of a batch of one sequence."""
        q, k, _ = self.contents(hidden_T).permute(1, 2, 0, 3).unsqueeze(1)
        return _scores(q, k, self.positions(layout), self.distances)[0]

    def positions(self, layout: Layout) -> Tensor:
        """Return queries and keys (R, 2, H, D) of the layout's relative positions."""
        assert layout.relative_R is not None
        return self.projected(dropout(layout.relative_R, self.hidden_dropout if self.training else 0.0))

    def contents(self, hidden_T: Tensor) -> Tensor:
        """Return queries, keys and values (T, 3, H, D)."""
        raise NotImplementedError

    def projected(self, relative_R: Tensor) -> Tensor:
        """Return queries and keys (R, 2, H, D) for embeddings of relative positions (R, W)."""
        raise NotImplementedError


class DisentangledSelfAttention(Disentangled):
    """Disentangled attention with projections of its own for relative positions (DeBERTa v1). Keys have no bias."""

    def __init__(self, settings: Model) -> None:
        super().__init__(settings)
        width = settings.width
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.q_bias, self.v_bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.position_keys = nn.Linear(width, width, bias=False)
        self.position_queries = nn.Linear(width, width)

    def contents(self, hidden_T: Tensor) -> Tensor:
        bias = torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])
        qkv = self.qkv(hidden_T)
        return (qkv + bias.to(qkv.dtype)).unflatten(-1, (3, self.heads, -1))

    def projected(self, relative_R: Tensor) -> Tensor:
        both = torch.stack([self.position_queries(relative_R), self.position_keys(relative_R)], 1)
        return both.unflatten(-1, (self.heads, -1))


class BucketedSelfAttention(Disentangled):
    """Disentangled attention in which relative positions use the projections of the words (DeBERTa v2 and v3)."""

    def __init__(self, settings: Model) -> None:
        super().__init__(settings)
        self.qkv = nn.Linear(settings.width, 3 * settings.width)

    def contents(self, hidden_T: Tensor) -> Tensor:
        return self.qkv(hidden_T).unflatten(-1, (3, self.heads, -1))

    def projected(self, relative_R: Tensor) -> Tensor:
        return self.contents(relative_R)[:, :2]


def disentangled_attention(
    qkv: Tensor, relative_R: Tensor, distances: Distances, layout: Layout, dropout_probability: float
) -> Tensor:
    """Return the attention output of every token over its own sequence, scaled by 1 / sqrt(3 D).

    Maps queries, keys and values qkv (T, 3, H, D) to (T, H, D) of the same dtype. `relative_R` (R, 2, H, D) holds
    queries and keys of the relative positions -R / 2 to R / 2 - 1; R / 2 must be `distances.near` of the longest
    sequence. The score of query i and key j is the sum of three products: query i with key j, query i with the key of
    the distance i - j, and key j with the query of the distance i - j. No flash kernel computes such scores.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        return weighted_values(_scores(q, k, relative_R, distances), v, key_mask, dropout_probability)

    return in_groups(qkv, layout, attend)


def _scores(q: Tensor, k: Tensor, relative_R: Tensor, distances: Distances) -> Tensor:
    """Return the scores (N, H, S, S) of queries and keys (N, H, S, D), as in `disentangled_attention`."""
    scale, near, S = 1 / math.sqrt(TERMS * q.shape[-1]), relative_R.shape[0] // 2, q.shape[-2]
    queries_R, keys_R = relative_R.unbind(1)
    steps = torch.arange(2 * S, device=q.device) - (S - 1)
    near_keys = keys_R[distances.rows(-steps, near)].permute(1, 2, 0)
    near_queries = queries_R[distances.rows(steps, near)].permute(1, 2, 0)
    # Scaling before the products keeps float16 from overflowing.
    q, near_queries = q * scale, near_queries * scale
    return q @ k.transpose(-1, -2) + shifted(q @ near_keys) + shifted(k @ near_queries).transpose(-1, -2)


def shifted(products: Tensor) -> Tensor:
    """Return (..., S, S) from (..., S, 2 S): entry [i, j] is entry [i, S - 1 - i + j] of the input.

    If column c of the input stands for the distance S - 1 - c, entry [i, j] of the output stands for i - j. Both
    directions only move memory, so gradients are the same in every run.
    """
    S = products.shape[-2]
    return products.flatten(-2)[..., S - 1 :][..., : S * (2 * S - 1)].unflatten(-1, (S, 2 * S - 1))[..., :S]
