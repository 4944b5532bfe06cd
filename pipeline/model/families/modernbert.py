"""ModernBERT (Warner et al. 2024), as transformers publishes it; Ettin's encoders (Weller et al. 2025) are the same."""

from typing import Any

from pipeline.config.model import Model
from pipeline.config.model_parts import LocalAttention, RotaryPositions
from pipeline.errors import CheckpointError
from pipeline.model.family import Family

LAYER = {
    "attention.qkv": "attn.Wqkv",
    "attention.output": "attn.Wo",
    "attention_norm": "attn_norm",
    "feed_forward.inner": "mlp.Wi",
    "feed_forward.outer": "mlp.Wo",
    "feed_forward_norm": "mlp_norm",
}
THETA = {"full_attention": ("global_rope_theta", 160_000.0), "sliding_attention": ("local_rope_theta", 10_000.0)}
"""Kind of layer -> (field of config.json before transformers 5, default base of its angles)."""
WINDOW, EVERY = 128, 3


def _to_config(settings: Model) -> dict[str, Any]:
    """Return the fields of attention and positions, in the form before transformers 5 and in the form since then.

    Dropout and the ids of special tokens have several fields. Ids that are None are not those of the published
    vocabulary, which transformers would assume.
    """
    attention, positions = settings.attention, settings.positions
    assert isinstance(attention, LocalAttention) and isinstance(positions, RotaryPositions)
    local = positions.theta if positions.local_theta is None else positions.local_theta
    thetas = dict(zip(THETA, (positions.theta, local), strict=True))
    return (
        {
            "local_attention": attention.window,
            "global_attn_every_n_layers": attention.global_every,
            "layer_types": _kinds(attention.global_every, settings.layers),
        }
        | {"rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}}
        | {THETA[kind][0]: theta for kind, theta in thetas.items()}
        | dict.fromkeys(("embedding_dropout", "classifier_dropout"), settings.hidden_dropout)
        | dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    )


def _from_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return attention, positions and the parts that all ModernBERTs have. Raises CheckpointError for other values."""
    window = config.get("local_attention", WINDOW)
    if not isinstance(window, int) or window < 2 or window % 2:
        raise CheckpointError(f"config.json: local_attention is {window!r}, but must be an even number of at least 2")
    scaling = config.get("rope_scaling")  # for both kinds of layers, before transformers 5
    if scaling not in (None, {"rope_type": "default"}, {"type": "default"}):
        raise CheckpointError(f"config.json: rope_scaling is {scaling!r}, but only type 'default' can be loaded")
    thetas = {kind: _theta(config, kind) for kind in THETA}
    return {
        "attention": LocalAttention(window=window, global_every=_global_every(config)),
        "positions": RotaryPositions(theta=thetas["full_attention"], local_theta=thetas["sliding_attention"]),
        "inner": "geglu",
        "block": "pre-norm",
        "bias": False,
    }


def _theta(config: dict[str, Any], kind: str) -> float:
    """Return the base of the angles of a kind of layer. Raises CheckpointError unless it is a number above 0."""
    name, default = THETA[kind]
    every = config.get("rope_parameters") or {}
    rope = (every.get(kind) or {}) if isinstance(every, dict) and every.keys() <= THETA.keys() else None
    if not isinstance(rope, dict):
        raise CheckpointError(f"config.json: rope_parameters is {every!r}, but must have settings for {kind}")
    if rope.get("rope_type", "default") != "default":
        raise CheckpointError(
            f"config.json: rope_parameters.{kind}.rope_type is {rope['rope_type']!r}, but only 'default' can be loaded"
        )
    theta = rope.get("rope_theta", config.get(name, default))
    if not isinstance(theta, int | float) or isinstance(theta, bool) or not theta > 0:
        raise CheckpointError(f"config.json: {name} is {theta!r}, but must be a number above 0")
    return float(theta)


def _global_every(config: dict[str, Any]) -> int:
    """Return the distance of layers with global attention. Raises CheckpointError if it is not the same everywhere."""
    every, kinds = config.get("global_attn_every_n_layers", EVERY), config.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or len(kinds) != config["num_hidden_layers"]):
        raise CheckpointError(
            f"config.json: layer_types is {kinds!r}, but must be a list with a kind for each of the "
            f"{config['num_hidden_layers']} layers (num_hidden_layers)"
        )
    if kinds is not None and kinds != _kinds(every, len(kinds)):
        every = next((n for n in range(1, len(kinds)) if kinds[n] == "full_attention"), max(1, len(kinds)))
        if kinds != _kinds(every, len(kinds)):
            raise CheckpointError(
                "config.json: layer_types can be loaded only if layers 0, n, 2 n and so on are full_attention and all "
                "others sliding_attention"
            )
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise CheckpointError(f"config.json: global_attn_every_n_layers is {every!r}, but must be at least 1")
    return every


def _kinds(every: Any, layers: int) -> list[str]:
    """Return the kind of each layer's attention; an empty list if `every` is no number above 0."""
    if not isinstance(every, int) or every < 1:
        return []
    return ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]


MODERNBERT = Family(
    name="modernbert",
    title="ModernBERT",
    names={f"encoder.layers.#.{ours}": f"model.layers.#.{theirs}" for ours, theirs in LAYER.items()}
    | {
        "encoder.embeddings.words": "model.embeddings.tok_embeddings",
        "encoder.embeddings.norm": "model.embeddings.norm",
        "encoder.final_norm": "model.final_norm",
        "masked_token_head.dense": "head.dense",
        "masked_token_head.norm": "head.norm",
        "masked_token_head": "decoder",
        "classification_layer": "head.dense",
        "classification_layer.norm": "head.norm",
        "classification_head": "classifier",
        "tag_head": "classifier",
        "answer_head": "classifier",
        "choice_layer": "head.dense",
        "choice_layer.norm": "head.norm",
        "choice_head": "classifier",
        "attention_pooling": "attention_pooling",
    },
    encoder="model.",
    bare=("embeddings.", "layers.", "final_norm."),
    fused=None,
    tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    heads=("head.", "decoder."),
    other_heads=("classifier.", "attention_pooling."),
    buffers=(),
    config={
        "layers": "num_hidden_layers",
        "width": "hidden_size",
        "heads": "num_attention_heads",
        "feed_forward": "intermediate_size",
        "maximum_positions": "max_position_embeddings",
        "hidden_dropout": "mlp_dropout",
        "attention_dropout": "attention_dropout",
        "layer_norm_epsilon": "norm_eps",
        "initializer_deviation": "initializer_range",
    },
    fixed={
        "model_type": "modernbert",
        "hidden_activation": "gelu",
        "classifier_activation": "gelu",
        "decoder_bias": True,
        **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
    },
    defaults={"max_position_embeddings": 8192, "norm_eps": 1e-5, "mlp_dropout": 0.0, "attention_dropout": 0.0},
    parts_to_config=_to_config,
    parts_from_config=_from_config,
    pooling_field="classifier_pooling",
    class_prefix="ModernBert",
    architectures={
        "masked": "ModernBertForMaskedLM",
        "encoder": "ModernBertModel",
        "classification": "ModernBertForSequenceClassification",
        "multilabel": "ModernBertForSequenceClassification",
        "regression": "ModernBertForSequenceClassification",
        "similarity": "ModernBertModel",
        "tags": "ModernBertForTokenClassification",
        "spans": "ModernBertForQuestionAnswering",
        "choices": "ModernBertForMultipleChoice",
    },
    inputs=("input_ids", "attention_mask"),
)
