"""Train transformers' models on our batches, with the models' fastest settings, as a baseline for `bench.py step`.

Shapes: N sequences, S tokens in the longest sequence, T tokens in all sequences, M masked positions, V vocabulary
entries.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.batch import MaskedBatch, NextSentenceBatch, SentenceOrderBatch
from pipeline.config.model import Model
from pipeline.config.training import AdamW
from pipeline.model.families.table import MODEL_TYPES, family_of
from pipeline.model.weights import published_config
from pipeline.objectives.published import PublishedModel
from pipeline.objectives.table import Pretraining

IGNORED = -100  # label of positions that transformers leaves out of the loss
CLIP_NORM = AdamW().clip_norm
PAIR_LABELS = ("next_sentence_label", "sentence_order_label")
"""transformers' names for the labels of sentence pairs."""


def peer_model(ours: Pretraining, vocabulary_size: int) -> nn.Module:
    """Build transformers' models of an objective, in training mode, with random weights and our dropout.

    The models use scaled dot-product attention where transformers has it for the family.
    """
    made = [_published(model, vocabulary_size, paired=len(ours.terms) > 1) for model in ours.models()]
    return made[0].train() if len(made) == 1 else ReplacedPeer(*made, *ours.weights.values()).train()


def _published(model: PublishedModel, vocabulary_size: int, *, paired: bool) -> Any:
    """Return transformers' model. If `paired` and the family has a pair head, it has this head too (ForPreTraining)."""
    import transformers

    settings, family = model.settings, family_of(model.settings)
    paired = paired and "next_sentence_head" in family.names
    name = f"{family.class_prefix}ForPreTraining" if paired else family.architectures[model.use]
    config = published_config(settings, vocabulary_size, _padding_entry(settings), model.use)
    model_class = getattr(transformers, name)
    attention = {"attn_implementation": "sdpa"} if model_class._supports_sdpa else {}
    made = getattr(transformers, f"{family.class_prefix}Config")(**config, **attention)
    if hasattr(made, "classifier_dropout_prob"):  # ALBERT: our pair head has no dropout, as in google-research/albert
        made.classifier_dropout_prob = 0.0
    model = model_class(made)
    if not paired and getattr(model.base_model, "pooler", None) is not None:  # BigBird: a pooler that nothing trains
        model.base_model.pooler = model.base_model.activation = None
    return model


class ReplacedPeer(nn.Module):
    """ELECTRA's two models, sharing the discriminator's embeddings as in google-research/electra."""

    def __init__(self, discriminator: Any, generator: Any, weight: float) -> None:
        super().__init__()
        generator.base_model.embeddings = discriminator.base_model.embeddings
        generator.tie_weights()
        self.discriminator, self.generator, self.weight = discriminator, generator, weight


def _padding_entry(settings: Model) -> int:
    """Return the id of the padding entry: in RoBERTa `model.positions.first` - 1, otherwise 0."""
    return max(0, settings.first_position - 1)


def padded(batch: MaskedBatch, settings: Model) -> dict[str, Any]:
    """Return the batch in transformers' format, int64.

    input_ids, labels, token_type_ids, attention_mask: padded rows (N, S). token_type_ids is left out if the family has
    no segments. attention_mask is left out if all rows have the same length.
    masked_places, masked_labels: masked positions as indices into the flattened rows, and their labels (M,).
    next_sentence_label: 1 if B does not follow A (N,). sentence_order_label: 1 if A and B are swapped (N,). A label is
    left out if the batch does not have it.
    """
    N, S = batch.sequences, batch.maximum_length
    rows_T = torch.repeat_interleave(torch.arange(N), batch.offsets.diff())
    indices_T = rows_T * S + batch.positions_T

    def spread(values: Tensor, indices: Tensor, empty: int) -> Tensor:
        return torch.full((N * S,), empty, dtype=torch.int64).index_copy(0, indices, values).view(N, S)

    inputs = {
        "input_ids": spread(batch.ids_T, indices_T, _padding_entry(settings)),
        "labels": spread(batch.masked_labels_M, indices_T[batch.masked_positions_M], IGNORED),
        "masked_places": indices_T[batch.masked_positions_M],
        "masked_labels": batch.masked_labels_M,
    }
    if settings.segments > 1:
        inputs["token_type_ids"] = spread(batch.segments_T, indices_T, 0)
    if isinstance(batch, NextSentenceBatch):
        inputs["next_sentence_label"] = batch.not_next_N
    if isinstance(batch, SentenceOrderBatch):
        inputs["sentence_order_label"] = batch.swapped_N
    full = batch.tokens == N * S
    return inputs if full else inputs | {"attention_mask": spread(torch.ones_like(batch.ids_T), indices_T, 0)}


def _model_inputs(inputs: dict[str, Tensor], *more: str) -> dict[str, Tensor]:
    """Return an encoder's inputs and the inputs named in `more`. Inputs that the batch lacks are left out."""
    return {name: inputs[name] for name in ("input_ids", "token_type_ids", "attention_mask", *more) if name in inputs}


def shipped_loss(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Return the sum of the mean losses (a scalar). Like transformers, compute vocabulary logits at all positions."""
    if not isinstance(model, ReplacedPeer):
        return model(**_model_inputs(inputs, "labels", *PAIR_LABELS)).loss
    output = model.generator(**_model_inputs(inputs, "labels"))
    return output.loss + _discriminator_loss(model, inputs, output.logits.flatten(0, 1)[inputs["masked_places"]])


def masked_only_loss(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Return the same sum as `shipped_loss`, but compute vocabulary logits only at masked positions."""
    replaced = isinstance(model, ReplacedPeer)
    masked = model.generator if replaced else model
    output = masked.base_model(**_model_inputs(inputs))
    names = MODEL_TYPES[masked.config.model_type].names
    logits_M = _masked_logits(masked, names, output.last_hidden_state.flatten(0, 1)[inputs["masked_places"]])
    loss = F.cross_entropy(logits_M.float(), inputs["masked_labels"])
    if replaced:
        return loss + _discriminator_loss(model, inputs, logits_M)
    pair_labels = next((inputs[name] for name in PAIR_LABELS if name in inputs), None)
    if pair_labels is None:
        return loss
    pair_logits = masked.get_submodule(names["next_sentence_head"])(output.pooler_output)
    return loss + F.cross_entropy(pair_logits.float(), pair_labels)


def _masked_logits(model: Any, names: dict[str, str], hidden_M: Tensor) -> Tensor:
    """Return vocabulary logits (M, V) of hidden states (M, width).

    The head is one module in BERT, RoBERTa and ALBERT, two modules in ELECTRA, and three in DistilBERT. DeBERTa's head
    gets the word embeddings too.
    """
    head, dense, norm = (names[f"masked_token_head{part}"] for part in ("", ".dense", ".norm"))
    if model.config.model_type.startswith("deberta"):
        return model.get_submodule(head)(hidden_M, model.base_model.embeddings.word_embeddings)
    if not dense.startswith(f"{head}."):
        block = dense.rpartition(".")[0]
        if block:
            hidden_M = model.get_submodule(block)(hidden_M)
        else:
            hidden_M = model.get_submodule(norm)(F.gelu(model.get_submodule(dense)(hidden_M)))
    return model.get_submodule(head)(hidden_M)


def _discriminator_loss(model: ReplacedPeer, inputs: dict[str, Tensor], logits_M: Tensor) -> Tensor:
    """Return the weighted loss of the discriminator.

    Gumbel noise samples the replacements from the generator's logits (M, V), as in google-research/electra.
    """
    with torch.no_grad():
        noise = -torch.empty_like(logits_M, dtype=torch.float32).exponential_().log_()
        sampled_M = (logits_M.float() + noise).argmax(-1)
    shape, masked_M = inputs["input_ids"].shape, inputs["masked_places"]
    ids = inputs["input_ids"].flatten().index_copy(0, masked_M, sampled_M).view(shape)
    labels = torch.zeros_like(ids).flatten()
    labels = labels.index_copy(0, masked_M, (sampled_M != inputs["masked_labels"]).long()).view(shape)
    return model.weight * model.discriminator(**_model_inputs(inputs) | {"input_ids": ids}, labels=labels).loss


def peer_step(
    loss: Callable[[Any, dict[str, Tensor]], Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    autocast: torch.autocast,
    inputs: dict[str, Tensor],
) -> None:
    """Take one step on padded inputs: forward, backward, clipping, update.

    `loss`: `shipped_loss` or `masked_only_loss`, compiled or not.
    """
    device = next(model.parameters()).device
    base = getattr(model, "base_model", None)
    if hasattr(base, "set_attention_type"):  # BigBird has full attention for ever after its first short batch
        base.set_attention_type(model.config.attention_type)
    with autocast:
        total = loss(model, {name: value.to(device, non_blocking=True) for name, value in inputs.items()})
    total.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def peer_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return torch's fused AdamW with the learning rate, epsilon and weight decay that we use by default."""
    ours = AdamW()
    return torch.optim.AdamW(
        model.parameters(), lr=ours.learning_rate, eps=ours.epsilon, weight_decay=ours.weight_decay, fused=True
    )
