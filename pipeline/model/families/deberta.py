"""DeBERTa (He et al. 2021), as microsoft/DeBERTa and transformers publish it: its positions are distances that enter
the attention scores.
"""

from typing import Any

from pipeline.config.model import Model
from pipeline.config.model_parts import DisentangledAttention, NoPositions
from pipeline.errors import CheckpointError
from pipeline.model.families.bert import CONFIG, LAYER, buffers
from pipeline.model.family import Family

EMBEDDINGS = {"words": "word_embeddings", "norm": "LayerNorm"}
OWN_LAYER = LAYER | {
    "attention": "attention.self",
    "attention.qkv": "attention.self.in_proj",
    "attention.position_keys": "attention.self.pos_proj",
    "attention.position_queries": "attention.self.pos_q_proj",
}
HEADS = {
    "masked_token_head.dense": "lm_predictions.lm_head.dense",
    "masked_token_head.norm": "lm_predictions.lm_head.LayerNorm",
    "masked_token_head": "lm_predictions.lm_head",
    "enhanced_decoder.positions": "deberta.embeddings.position_embeddings",
    "classification_layer": "pooler.dense",
    "classification_head": "classifier",
    "tag_head": "classifier",
    "answer_head": "qa_outputs",
    "choice_layer": "pooler.dense",
    "choice_head": "classifier",
    "attention_pooling": "attention_pooling",
}
PRETRAINED_HEADS = ("lm_predictions.", "deberta.embeddings.position_embeddings.")
# transformers has two masked-token heads with the same computation. Its "legacy" head, the default, has names that the
# published files do not have, so these files leave it at random. We write the published names and "legacy": false, and
# read both.
LEGACY = {
    "cls.predictions.transform.dense.weight": "lm_predictions.lm_head.dense.weight",
    "cls.predictions.transform.dense.bias": "lm_predictions.lm_head.dense.bias",
    "cls.predictions.transform.LayerNorm.weight": "lm_predictions.lm_head.LayerNorm.weight",
    "cls.predictions.transform.LayerNorm.bias": "lm_predictions.lm_head.LayerNorm.bias",
    "cls.predictions.bias": "lm_predictions.lm_head.bias",
    "cls.predictions.decoder.bias": "lm_predictions.lm_head.bias",
    "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
}
"""Tensor of transformers' legacy masked-token head -> the published name."""
TERMS = ("c2p", "p2c")
"""Terms of the scores in config.json: content to position, position to content."""
WRITTEN: dict[str, Any] = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": list(TERMS),
    "legacy": False,
}


def encoder_names(layer: dict[str, str]) -> dict[str, str]:
    """Return {our module: published module} for an encoder whose layers have the names `layer`."""
    return (
        {f"encoder.embeddings.{ours}": f"deberta.embeddings.{theirs}" for ours, theirs in EMBEDDINGS.items()}
        | {f"encoder.layers.#.{ours}": f"deberta.encoder.layer.#.{theirs}" for ours, theirs in layer.items()}
        | {"encoder.relative.table": "deberta.encoder.rel_embeddings"}
    )


def maximum_distance(config: dict[str, Any]) -> int | None:
    """Return the maximum distance of a config.json, None for the maximum positions.

    Raises CheckpointError for another kind of attention.
    """
    terms = config.get("pos_att_type")
    listed = terms.lower().split("|") if isinstance(terms, str) else terms
    if not isinstance(listed, list) or sorted(map(str.strip, map(str, listed))) != sorted(TERMS):
        raise CheckpointError(f"config.json: pos_att_type is {terms!r}, but only 'c2p|p2c' can be loaded")
    for field, default in (("relative_attention", False), ("position_biased_input", True)):
        if config.get(field, default) is default:
            raise CheckpointError(f"config.json: {field} is {default}, but only {not default} can be loaded")
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    for field, own in (("embedding_size", width), ("attention_head_size", width // heads if heads else None)):
        if config.get(field, own) != own:
            raise CheckpointError(f"config.json: {field} is {config[field]!r}, but only {own!r} can be loaded")
    distance = config.get("max_relative_positions", -1)
    if not isinstance(distance, int) or isinstance(distance, bool):
        raise CheckpointError(f"config.json: max_relative_positions is {distance!r}, which is not a whole number")
    return distance if distance >= 1 else None


def _parts_to_config(settings: Model) -> dict[str, Any]:
    """Return the fields of config.json that describe the attention."""
    assert isinstance(settings.attention, DisentangledAttention)
    return WRITTEN | {"max_relative_positions": settings.attention.maximum_distance or -1}


def _parts_from_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of positions and attention. Raises CheckpointError for another kind of attention."""
    attention = DisentangledAttention(maximum_distance=maximum_distance(config))
    return {"positions": NoPositions(), "attention": attention}


DEBERTA = Family(
    name="deberta",
    title="DeBERTa",
    names=encoder_names(OWN_LAYER) | HEADS,
    encoder="deberta.",
    bare=("embeddings.", "encoder."),
    fused=None,
    alternates_heads=True,
    tied=LEGACY,
    heads=PRETRAINED_HEADS,
    other_heads=("pooler.", "classifier.", "qa_outputs.", "attention_pooling."),
    buffers=buffers("deberta."),
    config=CONFIG,
    fixed={"model_type": "deberta", "hidden_act": "gelu"},
    assumed={"talking_head": False, "pooler_dropout": 0, "pooler_hidden_act": "gelu"},
    defaults={"layer_norm_eps": 1e-7},
    parts_to_config=_parts_to_config,
    parts_from_config=_parts_from_config,
    without_choices=True,
    class_prefix="Deberta",
    architectures={
        "masked": "DebertaForMaskedLM",
        "encoder": "DebertaModel",
        "classification": "DebertaForSequenceClassification",
        "multilabel": "DebertaForSequenceClassification",
        "regression": "DebertaForSequenceClassification",
        "similarity": "DebertaModel",
        "tags": "DebertaForTokenClassification",
        "spans": "DebertaForQuestionAnswering",
        "choices": "DebertaForMultipleChoice",
    },
    inputs=("input_ids", "attention_mask"),
)
