"""BigBird (Zaheer et al. 2020), as transformers publishes it: BERT with block-sparse attention.

In transformers, its classes for masked tokens and for tags have a pooler that they do not use, and that our files lack.
In evaluation, its attention uses block 0 in place of every random block (see pipeline.model.random_blocks), so that
the states of long texts are not those of training.
"""

from typing import Any

from pipeline.config.model import Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.errors import CheckpointError
from pipeline.model.families.bert import (
    ASSUMED,
    BARE,
    CONFIG,
    FUSED,
    HEADS,
    PRETRAINING_HEADS,
    TIED,
    buffers,
    encoder_names,
)
from pipeline.model.family import Family

FIELDS = {"block_size": ("block_size", 64, 1), "random_blocks": ("num_random_blocks", 3, 0)}
"""Setting of attention -> field of config.json, its published value, and its smallest value."""
NO_ENTRY = -1
"""Value of sep_token_id, which only BigBirdForQuestionAnswering uses: it excludes all tokens up to the first [SEP] from
the answers. With this value, it excludes none, as in other families.
"""


def _to_config(settings: Model) -> dict[str, Any]:
    """Return the fields of attention, and ids of special tokens that replace those of the published vocabulary."""
    attention = settings.attention
    assert isinstance(attention, BlockSparseAttention)
    return {field: getattr(attention, name) for name, (field, _, _) in FIELDS.items()} | {
        "bos_token_id": None,
        "eos_token_id": None,
        "sep_token_id": NO_ENTRY,
    }


def _from_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the attention. Raises CheckpointError for sizes that are not whole numbers."""
    values = {}
    for name, (field, published, least) in FIELDS.items():
        value = config.get(field, published)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise CheckpointError(f"config.json: {field} is {value!r}, but must be a whole number of at least {least}")
        values[name] = value
    return {"attention": BlockSparseAttention(**values)}


BIGBIRD = Family(
    name="bigbird",
    title="BigBird",
    names=encoder_names("bert.")
    | {
        "encoder.pooler": "bert.pooler",
        **PRETRAINING_HEADS,
        "classification_layer": "classifier.dense",
        "classification_head": "classifier.out_proj",
        "tag_head": "classifier",
        "classification_layer.inner": "qa_classifier.intermediate.dense",
        "classification_layer.outer": "qa_classifier.output.dense",
        "classification_layer.norm": "qa_classifier.output.LayerNorm",
        "answer_head": "qa_classifier.qa_outputs",
        "choice_head": "classifier",
        "attention_pooling": "attention_pooling",
    },
    encoder="bert.",
    bare=BARE,
    fused=FUSED,
    tied=TIED,
    heads=HEADS,
    other_heads=("classifier.", "qa_classifier.", "attention_pooling."),
    buffers=buffers("bert."),
    config=CONFIG | {"activation": "hidden_act"},
    fixed={"model_type": "big_bird", "attention_type": "block_sparse", "use_bias": True, "rescale_embeddings": False},
    assumed=ASSUMED,
    defaults={"max_position_embeddings": 4096},
    parts_to_config=_to_config,
    parts_from_config=_from_config,
    pair_logits="seq_relationship_logits",
    class_prefix="BigBird",
    architectures={
        # Published checkpoints name BigBirdForPreTraining, whose class AutoModelForPreTraining chooses by model_type.
        "masked": "BigBirdForMaskedLM",
        "encoder": "BigBirdModel",
        "classification": "BigBirdForSequenceClassification",
        "multilabel": "BigBirdForSequenceClassification",
        "regression": "BigBirdForSequenceClassification",
        "similarity": "BigBirdModel",
        "tags": "BigBirdForTokenClassification",
        "spans": "BigBirdForQuestionAnswering",
        "choices": "BigBirdForMultipleChoice",
    },
    inputs=("input_ids", "attention_mask", "token_type_ids"),
)
