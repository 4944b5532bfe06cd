"""DistilBERT (Sanh et al. 2019), as transformers publishes it: a BERT without segments and pooler."""

from pipeline.model.families.bert import buffers
from pipeline.model.family import Family

LAYER = {
    "attention.qkv": "attention",
    "attention.output": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "feed_forward.inner": "ffn.lin1",
    "feed_forward.outer": "ffn.lin2",
    "feed_forward_norm": "output_layer_norm",
}

DISTILBERT = Family(
    name="distilbert",
    title="DistilBERT",
    names={
        "encoder.embeddings.words": "distilbert.embeddings.word_embeddings",
        "encoder.embeddings.positions": "distilbert.embeddings.position_embeddings",
        "encoder.embeddings.norm": "distilbert.embeddings.LayerNorm",
    }
    | {f"encoder.layers.#.{ours}": f"distilbert.transformer.layer.#.{theirs}" for ours, theirs in LAYER.items()}
    | {
        "masked_token_head.dense": "vocab_transform",
        "masked_token_head.norm": "vocab_layer_norm",
        "masked_token_head": "vocab_projector",
        "classification_layer": "pre_classifier",
        "classification_head": "classifier",
        "tag_head": "classifier",
        "answer_head": "qa_outputs",
        "choice_layer": "pre_classifier",
        "choice_head": "classifier",
        "attention_pooling": "attention_pooling",
    },
    encoder="distilbert.",
    bare=("embeddings.", "transformer."),
    fused=(".attention.", ("q_lin", "k_lin", "v_lin")),
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    heads=("vocab_transform.", "vocab_layer_norm.", "vocab_projector."),
    other_heads=("pre_classifier.", "classifier.", "qa_outputs.", "attention_pooling."),
    buffers=buffers("distilbert."),
    config={
        "layers": "n_layers",
        "width": "dim",
        "heads": "n_heads",
        "feed_forward": "hidden_dim",
        "maximum_positions": "max_position_embeddings",
        "hidden_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "initializer_deviation": "initializer_range",
    },
    fixed={"model_type": "distilbert", "activation": "gelu"},
    class_prefix="DistilBert",
    architectures={
        "masked": "DistilBertForMaskedLM",
        "encoder": "DistilBertModel",
        "classification": "DistilBertForSequenceClassification",
        "multilabel": "DistilBertForSequenceClassification",
        "regression": "DistilBertForSequenceClassification",
        "similarity": "DistilBertModel",
        "tags": "DistilBertForTokenClassification",
        "spans": "DistilBertForQuestionAnswering",
        "choices": "DistilBertForMultipleChoice",
    },
    inputs=("input_ids", "attention_mask"),
)
