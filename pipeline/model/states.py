"""Inspect an encoder: hidden states after every layer, and attention weights.

Shapes: T tokens of the batch, H heads, L layers.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from pipeline.batch import Batch
from pipeline.errors import ConfigError
from pipeline.model.attention import Layout
from pipeline.model.block_sparse import BlockLayout, times_counted
from pipeline.model.disentangled import Disentangled
from pipeline.model.encoder import Encoder, Layer
from pipeline.model.global_local import GlobalLayout

Layers = int | Sequence[int] | Literal["mean of last four"]
LAST = 4
"""Number of layers in "mean of last four". Devlin et al. 2019, section 5.3, sum or concatenate the same layers."""


def layer_numbers(layers: Layers, count: int) -> list[int]:
    """Return `layers` as a list of numbers, for a model of `count` layers.

    Raises ConfigError for a layer that the model does not have.
    """
    if isinstance(layers, str):
        if layers != "mean of last four" or count < LAST:
            raise ConfigError(
                f"layers ({layers}) must be a number, several numbers, or 'mean of last four', which needs at "
                f"least {LAST} layers; this model has {count}"
            )
        return list(range(-LAST, 0))
    wanted = [layers] if isinstance(layers, int) else list(layers)
    if wrong := [number for number in wanted if not -count - 1 <= number <= count]:
        raise ConfigError(
            f"layers ({wrong[0]}) must be from {-count - 1} to {count}: this model has {count} layers, and 0 is "
            "the embeddings"
        )
    if not wanted:
        raise ConfigError("layers is empty: give one or more numbers")
    return wanted


@torch.inference_mode()
def layer_states(encoder: Encoder, batch: Batch) -> list[Tensor]:
    """Return L + 1 hidden states (T, width): the states after the embeddings, and the states after each layer.
    A final LayerNorm applies to the last layer's states.

    The encoder must be in evaluation mode.
    """
    states = [encoder.embed(batch)]
    for layer, layout in zip(encoder.applied_layers, encoder.layouts(batch), strict=True):
        states.append(layer(states[-1], layout))
    return [*states[:-1], encoder.final_norm(states[-1])]


@torch.inference_mode()
def attention_weights(encoder: Encoder, batch: Batch) -> Tensor:
    """Return the attention weights of each token (row) on each token (column), float32 (L, H, T, T).

    The batch must have one sequence, and the encoder must be in evaluation mode.
    """
    states = layer_states(encoder, batch)[:-1]
    layers = zip(encoder.applied_layers, states, encoder.layouts(batch), strict=True)
    return torch.stack([_weights(layer, hidden_T, layout) for layer, hidden_T, layout in layers])


def _weights(layer: Layer, hidden_T: Tensor, layout: Layout) -> Tensor:
    if isinstance(layer.attention, Disentangled):
        return layer.attention.scores(hidden_T, layout).softmax(-1)
    inputs_T = layer.attention_input(hidden_T)
    scores = _scores(layer.attention.projected(inputs_T, layout))
    positions_T = torch.arange(len(hidden_T), device=hidden_T.device)
    distances = (positions_T - positions_T[:, None]).abs()
    if layout.band is not None:
        scores = scores.masked_fill(distances > layout.band.reach, -math.inf)
    if isinstance(layout, BlockLayout):  # a block that is counted twice has twice the weight
        counts = times_counted(layout.blocks.groups[0]).to(scores.dtype)
        scores = scores + counts.log()[:, : len(hidden_T), : len(hidden_T)]
    if not isinstance(layout, GlobalLayout):
        return scores.softmax(-1)
    chosen = layout.global_tokens
    scores = scores.masked_fill((distances > chosen.reach) & ~chosen.is_global_T, -math.inf)
    whole = _scores(layer.attention.global_projected(inputs_T, chosen))
    return torch.where(chosen.is_global_T[:, None], whole, scores).softmax(-1)


def _scores(qkv: Tensor) -> Tensor:
    """Return the scores (H, T, T) of queries, keys and values (T, 3, H, D)."""
    q, k, _ = qkv.permute(1, 2, 0, 3)
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
