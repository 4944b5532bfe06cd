"""DeBERTa v2 and v3 (He et al. 2021, 2023), as microsoft/DeBERTa and transformers publish it: logarithmic buckets of
distances, whose embeddings use the projections of the words.
"""

from dataclasses import replace
from typing import Any

from pipeline.config.model import Model
from pipeline.config.model_parts import BucketedAttention, NoPositions
from pipeline.errors import CheckpointError
from pipeline.model.families.bert import LAYER
from pipeline.model.families.deberta import (
    DEBERTA,
    HEADS,
    PRETRAINED_HEADS,
    WRITTEN,
    encoder_names,
    maximum_distance,
)

SHARED: dict[str, Any] = {"norm_rel_ebd": "layer_norm", "share_att_key": True}
"""Fields of config.json that all published models of version 3 have."""


def _parts_to_config(settings: Model) -> dict[str, Any]:
    """Return the fields of config.json that describe the attention."""
    assert isinstance(settings.attention, BucketedAttention)
    distance = settings.attention.maximum_distance or -1
    return WRITTEN | SHARED | {"position_buckets": settings.attention.buckets, "max_relative_positions": distance}


def _parts_from_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of positions and attention. Raises CheckpointError for another kind of attention."""
    for field, value in SHARED.items():
        if config.get(field) != value:
            raise CheckpointError(f"config.json: {field} is {config.get(field)!r}, but only {value!r} can be loaded")
    if config.get("conv_kernel_size", 0):
        raise CheckpointError(
            f"config.json: conv_kernel_size is {config['conv_kernel_size']!r}, but only models without a convolution "
            "can be loaded: use DeBERTa v3, which has none"
        )
    buckets, distance = config.get("position_buckets", -1), maximum_distance(config)
    if not isinstance(buckets, int) or isinstance(buckets, bool) or buckets < 4:
        raise CheckpointError(f"config.json: position_buckets is {buckets!r}, but must be a whole number of at least 4")
    return {"positions": NoPositions(), "attention": BucketedAttention(buckets=buckets, maximum_distance=distance)}


DEBERTA_V2 = replace(
    DEBERTA,
    name="deberta-v2",
    title="DeBERTa v3",
    names=encoder_names(LAYER | {"attention.qkv": "attention.self"})
    | HEADS
    | {
        "encoder.relative.norm": "deberta.encoder.LayerNorm",
        "replaced_token_head.norm": "mask_predictions.LayerNorm",
        "replaced_token_head.dense": "mask_predictions.dense",
        "replaced_token_head.score": "mask_predictions.classifier",
    },
    fused=(".attention.self.", ("query_proj", "key_proj", "value_proj")),
    alternates_heads=False,
    heads=(*PRETRAINED_HEADS, "mask_predictions."),
    fixed={"model_type": "deberta-v2", "hidden_act": "gelu"},
    assumed={"pooler_dropout": 0, "pooler_hidden_act": "gelu"},
    defaults={"layer_norm_eps": 1e-7},
    parts_to_config=_parts_to_config,
    parts_from_config=_parts_from_config,
    without_choices=False,
    class_prefix="DebertaV2",
    architectures={use: name.replace("Deberta", "DebertaV2") for use, name in DEBERTA.architectures.items()}
    # transformers has no class with this head. The head is in the files, and transformers leaves it out.
    | {"replaced": "DebertaV2Model"},
)
