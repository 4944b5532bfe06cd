"""The training step of transformers' models on our batches, in its fastest settings, for comparison."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.config.training import AdamW
from pipeline.model.families.table import FAMILIES, family_of
from pipeline.model.weights import published_config
from pipeline.objectives.published import PublishedModel

IGNORED = -100  # transformers' label of what is not scored
CLIP_NORM = AdamW().clip_norm


def peer_model(models: Sequence[PublishedModel], vocabulary_size: int, weights: Mapping[str, float]) -> nn.Module:
    """Return transformers' models of an objective with scaled dot-product attention and our dropout, in training mode.

    `models` are those that our objective publishes, `weights` those of its terms.
    """
    made = [_published(model, vocabulary_size) for model in models]
    return made[0].train() if len(made) == 1 else ReplacedPeer(*made, *weights.values()).train()


def _published(model: PublishedModel, vocabulary_size: int) -> Any:
    """Return transformers' model; of one with a pair head, that with both heads."""
    import transformers

    settings, family = model.settings, family_of(model.settings)
    paired = "next_sentence_head" in family.names
    name = f"{family.class_prefix}ForPreTraining" if paired else family.architectures[model.use]
    config = published_config(settings, vocabulary_size, _padding_entry(settings), model.use)
    config_class = getattr(transformers, f"{family.class_prefix}Config")
    return getattr(transformers, name)(config_class(**config, attn_implementation="sdpa"))


class ReplacedPeer(nn.Module):
    """A discriminator and a generator with its embeddings, as ELECTRA's reference trains them."""

    def __init__(self, discriminator: Any, generator: Any, weight: float) -> None:
        super().__init__()
        generator.base_model.embeddings = discriminator.base_model.embeddings
        generator.tie_weights()
        self.discriminator, self.generator, self.weight = discriminator, generator, weight


def _padding_entry(settings: Model) -> int:
    """Return the vocabulary's padding entry, after which the positions of some families start."""
    return max(0, settings.positions.first - 1)


def padded(batch: Batch, settings: Model) -> dict[str, Any]:
    """Return the batch in transformers' format: padded rows, a mask where lengths differ, labels at all positions."""
    N, S = batch.sequences, batch.maximum_length
    rows_T = torch.repeat_interleave(torch.arange(N), batch.offsets.diff())
    slots = rows_T * S + batch.positions_T

    def spread(values: Tensor, slots: Tensor, empty: int) -> Tensor:
        return torch.full((N * S,), empty, dtype=torch.int64).index_copy(0, slots, values).view(N, S)

    inputs = {
        "input_ids": spread(batch.ids_T, slots, _padding_entry(settings)),
        "labels": spread(batch.masked_labels_M, slots[batch.masked_positions_M], IGNORED),
        "masked_places": slots[batch.masked_positions_M],
        "masked_labels": batch.masked_labels_M,
    }
    if settings.segments > 1:
        inputs["token_type_ids"] = spread(batch.segments_T, slots, 0)
    if batch.not_next_N is not None:
        inputs["next_sentence_label"] = batch.not_next_N
    full = batch.tokens == N * S
    return inputs if full else inputs | {"attention_mask": spread(torch.ones_like(batch.ids_T), slots, 0)}


def _of(inputs: dict[str, Tensor], *more: str) -> dict[str, Tensor]:
    """Return the inputs of an encoder, and others by name, where they are given."""
    return {name: inputs[name] for name in ("input_ids", "token_type_ids", "attention_mask", *more) if name in inputs}


def shipped_loss(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Return the sum of the mean losses as the library computes it: with logits of all positions."""
    if not isinstance(model, ReplacedPeer):
        return model(**_of(inputs, "labels", "next_sentence_label")).loss
    output = model.generator(**_of(inputs, "labels"))
    return output.loss + _discriminator_loss(model, inputs, output.logits.flatten(0, 1)[inputs["masked_places"]])


def masked_only_loss(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Return the same with the vocabulary head on masked positions only."""
    replaced = isinstance(model, ReplacedPeer)
    masked = model.generator if replaced else model
    output = masked.base_model(**_of(inputs))
    names = FAMILIES[masked.config.model_type].names
    logits_M = _masked_logits(masked, names, output.last_hidden_state.flatten(0, 1)[inputs["masked_places"]])
    loss = F.cross_entropy(logits_M.float(), inputs["masked_labels"])
    if replaced:
        return loss + _discriminator_loss(model, inputs, logits_M)
    if "next_sentence_label" not in inputs:
        return loss
    pair_logits = masked.get_submodule(names["next_sentence_head"])(output.pooler_output)
    return loss + F.cross_entropy(pair_logits.float(), inputs["next_sentence_label"])


def _masked_logits(model: Any, names: dict[str, str], hidden_M: Tensor) -> Tensor:
    """Return logits (M, V) of the model's own head, which some families have in two modules."""
    head, dense = names["masked_token_head"], names["masked_token_head.dense"]
    if not dense.startswith(f"{head}."):
        hidden_M = model.get_submodule(dense.rpartition(".")[0])(hidden_M)
    return model.get_submodule(head)(hidden_M)


def _discriminator_loss(model: ReplacedPeer, inputs: dict[str, Tensor], logits_M: Tensor) -> Tensor:
    """Return the weighted loss of replaced tokens, on samples by Gumbel noise as in google-research/electra."""
    with torch.no_grad():
        noise = -torch.empty_like(logits_M, dtype=torch.float32).exponential_().log_()
        sampled_M = (logits_M.float() + noise).argmax(-1)
    shape, slots = inputs["input_ids"].shape, inputs["masked_places"]
    ids = inputs["input_ids"].flatten().index_copy(0, slots, sampled_M).view(shape)
    labels = torch.zeros_like(ids).flatten()
    labels = labels.index_copy(0, slots, (sampled_M != inputs["masked_labels"]).long()).view(shape)
    return model.weight * model.discriminator(**_of(inputs) | {"input_ids": ids}, labels=labels).loss


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
