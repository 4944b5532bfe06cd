"""RoBERTa (Liu et al. 2019), as transformers publishes it."""

from pipeline.model.families.bert import ASSUMED, BARE, CONFIG, FUSED, TASK_HEADS, buffers, encoder_names
from pipeline.model.family import Family

ROBERTA = Family(
    name="roberta",
    title="RoBERTa",
    names=encoder_names("roberta.")
    | {
        "masked_token_head.dense": "lm_head.dense",
        "masked_token_head.norm": "lm_head.layer_norm",
        "masked_token_head": "lm_head",
        "classification_layer": "classifier.dense",
        "classification_head": "classifier.out_proj",
        "tag_head": "classifier",
        "answer_head": "qa_outputs",
        "choice_layer": "roberta.pooler.dense",
        "choice_head": "classifier",
        "attention_pooling": "attention_pooling",
    },
    encoder="roberta.",
    bare=BARE,
    fused=FUSED,
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    heads=("lm_head.",),
    other_heads=("roberta.pooler.", *TASK_HEADS),  # some files contain a pooler, but fairseq did not train it
    buffers=buffers("roberta."),
    config=CONFIG,
    fixed={"model_type": "roberta", "hidden_act": "gelu"},
    assumed=ASSUMED,
    class_prefix="Roberta",
    architectures={
        "masked": "RobertaForMaskedLM",
        "encoder": "RobertaModel",
        "classification": "RobertaForSequenceClassification",
        "multilabel": "RobertaForSequenceClassification",
        "regression": "RobertaForSequenceClassification",
        "similarity": "RobertaModel",
        "tags": "RobertaForTokenClassification",
        "spans": "RobertaForQuestionAnswering",
        "choices": "RobertaForMultipleChoice",
    },
    inputs=("input_ids", "attention_mask"),
)
