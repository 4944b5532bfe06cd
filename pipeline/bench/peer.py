"""The training step of transformers' BertForPreTraining on our batches, in its fastest settings, for comparison."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.config.training import AdamW
from pipeline.model.weights import published_config

IGNORED = -100  # transformers' label of what is not scored
CLIP_NORM = AdamW().clip_norm


def peer_model(settings: Model, vocabulary_size: int) -> nn.Module:
    """Return a BertForPreTraining with scaled dot-product attention and our dropout, in training mode."""
    from transformers import BertConfig, BertForPreTraining

    config = BertConfig(**published_config(settings, vocabulary_size, 0), attn_implementation="sdpa")
    return BertForPreTraining(config).train()


def padded(batch: Batch) -> dict[str, Any]:
    """Return the batch in transformers' format: padded rows, a mask where lengths differ, labels at all positions."""
    N, S = batch.sequences, batch.maximum_length
    rows_T = torch.repeat_interleave(torch.arange(N), batch.offsets.diff())
    places = rows_T * S + batch.positions_T

    def spread(values: Tensor, places: Tensor, empty: int) -> Tensor:
        return torch.full((N * S,), empty, dtype=torch.int64).index_copy(0, places, values).view(N, S)

    inputs = {
        "input_ids": spread(batch.ids_T, places, 0),
        "token_type_ids": spread(batch.segments_T, places, 0),
        "labels": spread(batch.masked_labels_M, places[batch.masked_positions_M], IGNORED),
        "next_sentence_label": batch.not_next_N,
        "masked_places": places[batch.masked_positions_M],
        "masked_labels": batch.masked_labels_M,
    }
    full = batch.tokens == N * S
    return inputs if full else inputs | {"attention_mask": spread(torch.ones_like(batch.ids_T), places, 0)}


def shipped_loss(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Return the sum of both mean losses as the library computes it: with logits of all positions."""
    names = ("input_ids", "token_type_ids", "attention_mask", "labels", "next_sentence_label")
    return model(**{name: inputs[name] for name in names if name in inputs}).loss


def masked_only_loss(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Return the same with the vocabulary head on masked positions only."""
    output = model.bert(
        **{name: inputs[name] for name in ("input_ids", "token_type_ids", "attention_mask") if name in inputs}
    )
    hidden_M = output.last_hidden_state.flatten(0, 1)[inputs["masked_places"]]
    masked = F.cross_entropy(model.cls.predictions(hidden_M).float(), inputs["masked_labels"])
    return masked + F.cross_entropy(
        model.cls.seq_relationship(output.pooler_output).float(), inputs["next_sentence_label"]
    )


def peer_step(
    loss: Callable[[Any, dict[str, Tensor]], Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    autocast: torch.autocast,
    inputs: dict[str, Tensor],
) -> None:
    """Take one step on padded inputs: forward, backward, clipping, fused AdamW."""
    device = next(model.parameters()).device
    with autocast:
        total = loss(model, {name: value.to(device, non_blocking=True) for name, value in inputs.items()})
    total.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def peer_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return fused AdamW with our defaults."""
    chosen = AdamW()
    return torch.optim.AdamW(
        model.parameters(), lr=chosen.learning_rate, eps=chosen.epsilon, weight_decay=chosen.weight_decay, fused=True
    )
