"""Inspect an encoder: hidden states after every layer, and attention weights.

Shapes: T tokens of the batch, H heads, L layers.
"""

import math

import torch
from torch import Tensor

from pipeline.batch import Batch
from pipeline.model.attention import layout
from pipeline.model.encoder import Encoder, SelfAttention


@torch.inference_mode()
def layer_states(encoder: Encoder, batch: Batch) -> list[Tensor]:
    """Return L + 1 hidden states (T, width): those after the embeddings, and after each layer.

    The encoder must be in evaluation mode.
    """
    where, states = layout(batch), [encoder.embed(batch)]
    for layer in encoder.applied_layers:
        states.append(layer(states[-1], where))
    return states


@torch.inference_mode()
def attention_weights(encoder: Encoder, batch: Batch) -> Tensor:
    """Return the attention of each token (row) on each token (column), float32 (L, H, T, T).

    The batch must have one sequence, and the encoder must be in evaluation mode.
    """
    states = layer_states(encoder, batch)[:-1]
    return torch.stack(
        [_weights(layer.attention, hidden_T) for layer, hidden_T in zip(encoder.applied_layers, states, strict=True)]
    )


def _weights(part: SelfAttention, hidden_T: Tensor) -> Tensor:
    T, width = hidden_T.shape
    q, k, _ = part.qkv(hidden_T).view(T, 3, part.heads, width // part.heads).permute(1, 2, 0, 3)
    return (q @ k.transpose(-1, -2) / math.sqrt(width // part.heads)).softmax(-1)
