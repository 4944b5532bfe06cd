"""BERT (Devlin et al. 2019), as google-research/bert and transformers publish it."""

from pipeline.model.family import Family

EMBEDDINGS = {
    "words": "word_embeddings",
    "positions": "position_embeddings",
    "segments": "token_type_embeddings",
    "norm": "LayerNorm",
}
LAYER = {
    "attention.qkv": "attention.self",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.inner": "intermediate.dense",
    "feed_forward.outer": "output.dense",
    "feed_forward_norm": "output.LayerNorm",
}
FUSED = (".attention.self.", ("query", "key", "value"))
BARE = ("embeddings.", "encoder.", "pooler.")
TASK_HEADS = ("classifier.", "qa_outputs.", "attention_pooling.")
CONFIG = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "maximum_positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_deviation": "initializer_range",
}
"""Our setting -> field of config.json; other families use the same field names."""
ASSUMED = {"position_embedding_type": "absolute", "is_decoder": False}


def encoder_names(prefix: str) -> dict[str, str]:
    """Return {our module: published module} for an encoder; published names begin with `prefix`."""
    return {f"encoder.embeddings.{ours}": f"{prefix}embeddings.{theirs}" for ours, theirs in EMBEDDINGS.items()} | {
        f"encoder.layers.#.{ours}": f"{prefix}encoder.layer.#.{theirs}" for ours, theirs in LAYER.items()
    }


def buffers(prefix: str) -> tuple[str, ...]:
    """Return the names of constant tensors that old checkpoints contain."""
    return (f"{prefix}embeddings.position_ids", f"{prefix}embeddings.token_type_ids")


PRETRAINING_HEADS = {
    "masked_token_head.dense": "cls.predictions.transform.dense",
    "masked_token_head.norm": "cls.predictions.transform.LayerNorm",
    "masked_token_head": "cls.predictions",
    "next_sentence_head": "cls.seq_relationship",
}
"""Module here -> its name in published checkpoints, for the heads of pretraining with pairs."""
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
HEADS = ("bert.pooler.", "cls.predictions.", "cls.seq_relationship.")
BERT = Family(
    name="bert",
    title="BERT",
    names=encoder_names("bert.")
    | {
        "encoder.pooler": "bert.pooler.dense",
        **PRETRAINING_HEADS,
        "classification_head": "classifier",
        "tag_head": "classifier",
        "answer_head": "qa_outputs",
        "choice_head": "classifier",
        "attention_pooling": "attention_pooling",
    },
    encoder="bert.",
    bare=BARE,
    fused=FUSED,
    tied=TIED,
    heads=HEADS,
    other_heads=TASK_HEADS,
    buffers=buffers("bert."),
    config=CONFIG,
    fixed={"model_type": "bert", "hidden_act": "gelu"},
    assumed=ASSUMED,
    pair_logits="seq_relationship_logits",
    class_prefix="Bert",
    architectures={
        # Published checkpoints have this name too, although BertForMaskedLM has no next-sentence head.
        # AutoModelForPreTraining ignores the name: it chooses the class by model_type and loads both heads.
        "masked": "BertForMaskedLM",
        "encoder": "BertModel",
        "classification": "BertForSequenceClassification",
        "multilabel": "BertForSequenceClassification",
        "regression": "BertForSequenceClassification",
        "similarity": "BertModel",
        "tags": "BertForTokenClassification",
        "spans": "BertForQuestionAnswering",
        "choices": "BertForMultipleChoice",
    },
    inputs=("input_ids", "attention_mask", "token_type_ids"),
)
