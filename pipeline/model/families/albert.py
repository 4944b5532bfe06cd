"""ALBERT (Lan et al. 2020), as transformers publishes it: one layer that is applied several times, and a head for
sentence order.
"""

from pipeline.model.families.bert import ASSUMED, BARE, CONFIG, EMBEDDINGS, TASK_HEADS, buffers
from pipeline.model.family import Family

SHARED = "albert.encoder.albert_layer_groups.0.albert_layers.0"
"""Name of the only layer. Published models have one group with one layer."""
LAYER = {
    "attention.qkv": "attention",
    "attention.output": "attention.dense",
    "attention_norm": "attention.LayerNorm",
    "feed_forward.inner": "ffn",
    "feed_forward.outer": "ffn_output",
    "feed_forward_norm": "full_layer_layer_norm",
}

ALBERT = Family(
    name="albert",
    title="ALBERT",
    names={f"encoder.embeddings.{ours}": f"albert.embeddings.{theirs}" for ours, theirs in EMBEDDINGS.items()}
    | {f"encoder.layers.#.{ours}": f"{SHARED}.{theirs}" for ours, theirs in LAYER.items()}
    | {
        "encoder.projection": "albert.encoder.embedding_hidden_mapping_in",
        "encoder.pooler": "albert.pooler",
        "masked_token_head.dense": "predictions.dense",
        "masked_token_head.norm": "predictions.LayerNorm",
        "masked_token_head": "predictions",
        "next_sentence_head": "sop_classifier.classifier",
        "classification_head": "classifier",
        "tag_head": "classifier",
        "answer_head": "qa_outputs",
        "choice_head": "classifier",
        "attention_pooling": "attention_pooling",
    },
    encoder="albert.",
    bare=BARE,
    fused=(".attention.", ("query", "key", "value")),
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    heads=("albert.pooler.", "predictions.", "sop_classifier."),
    other_heads=TASK_HEADS,
    buffers=buffers("albert."),
    config=CONFIG | {"embedding_width": "embedding_size", "activation": "hidden_act"},
    fixed={"model_type": "albert", "num_hidden_groups": 1, "inner_group_num": 1},
    assumed=ASSUMED,
    defaults={"hidden_act": "gelu_new", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    pair_logits="sop_logits",
    class_prefix="Albert",
    architectures={
        # Published checkpoints have this name too. AutoModelForPreTraining ignores the name: it chooses the class by
        # model_type and loads both heads.
        "masked": "AlbertForMaskedLM",
        "encoder": "AlbertModel",
        "classification": "AlbertForSequenceClassification",
        "multilabel": "AlbertForSequenceClassification",
        "regression": "AlbertForSequenceClassification",
        "similarity": "AlbertModel",
        "tags": "AlbertForTokenClassification",
        "spans": "AlbertForQuestionAnswering",
        "choices": "AlbertForMultipleChoice",
    },
    inputs=("input_ids", "attention_mask", "token_type_ids"),
)
