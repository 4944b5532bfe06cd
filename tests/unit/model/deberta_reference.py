"""DeBERTa written by hand from the papers and microsoft/DeBERTa, for one sequence and one head at a time.

Shapes: S tokens of the sequence, W width, R relative positions.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

State = dict[str, Tensor]


def bucket(distance: int, span: int, farthest: int | None) -> int:
    """Row of a distance in a table of 2 span relative positions; farthest None: each distance has its own."""
    found, middle = distance, span // 2
    if farthest is not None and abs(distance) > middle:
        share = math.log(abs(distance) / middle) / math.log((farthest - 1) / middle)
        found = int(math.copysign(math.ceil(share * (middle - 1)) + middle, distance))
    return max(0, min(2 * span - 1, found + span))


def rows_of(length: int, span: int, farthest: int | None) -> Tensor:
    """Row of the distance i - j for each query i and key j (S, S)."""
    return torch.tensor([[bucket(i - j, span, farthest) for j in range(length)] for i in range(length)])


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))


def norm(state: State, name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], 1e-7)


def layer(state: State, name: str, hidden_S: Tensor, queries_S: Tensor, rows: Tensor, heads: int) -> Tensor:
    """One layer: queries from queries_S, keys and values from hidden_S, and the residual connection from queries_S."""
    part, relative = f"{name}.attention", state["relative.table.weight"]
    matrices = state[f"{part}.qkv.weight"].chunk(3)
    if f"{part}.q_bias" in state:  # version 1
        q = queries_S @ matrices[0].T + state[f"{part}.q_bias"]
        k = hidden_S @ matrices[1].T
        v = hidden_S @ matrices[2].T + state[f"{part}.v_bias"]
        keys, queries = (
            linear(state, f"{part}.position_keys", relative),
            linear(state, f"{part}.position_queries", relative),
        )
    else:  # versions 2 and 3
        biases, relative = state[f"{part}.qkv.bias"].chunk(3), norm(state, "relative.norm", relative)
        q, k, v = (x @ m.T + b for x, m, b in zip((queries_S, hidden_S, hidden_S), matrices, biases, strict=True))
        queries, keys = relative @ matrices[0].T + biases[0], relative @ matrices[1].T + biases[1]
    outputs, width = [], q.shape[1] // heads
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        content = q[:, own] @ k[:, own].T
        to_position = (q[:, own] @ keys[:, own].T).gather(1, rows)
        of_position = (k[:, own] @ queries[:, own].T).gather(1, rows.T).T
        weights = ((content + to_position + of_position) / math.sqrt(3 * width)).softmax(1)
        outputs.append(weights @ v[:, own])
    attended = norm(state, f"{name}.attention_norm", queries_S + linear(state, f"{part}.output", torch.cat(outputs, 1)))
    inner = F.gelu(linear(state, f"{name}.feed_forward.inner", attended))
    return norm(state, f"{name}.feed_forward_norm", attended + linear(state, f"{name}.feed_forward.outer", inner))


def states(state: State, ids_S: Tensor, rows: Tensor, layers: int, heads: int) -> list[Tensor]:
    """Hidden states (S, W) after the embeddings and after each layer; the input has no positions."""
    found = [norm(state, "embeddings.norm", state["embeddings.words.weight"][ids_S])]
    for number in range(layers):
        found.append(layer(state, f"layers.{number}", found[-1], found[-1], rows, heads))
    return found


def vocabulary_logits(head: State, hidden_M: Tensor, words: Tensor) -> Tensor:
    """Logits (M, V) of the masked-token head, whose output weights are the word embeddings."""
    return norm(head, "norm", F.gelu(linear(head, "dense", hidden_M))) @ words.T + head["bias"]
