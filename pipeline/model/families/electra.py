"""ELECTRA (Clark et al. 2020), as transformers publishes it: generator and discriminator as two separate models."""

from pipeline.model.families.bert import ASSUMED, BARE, CONFIG, FUSED, TASK_HEADS, buffers, encoder_names
from pipeline.model.family import Family

ELECTRA = Family(
    name="electra",
    title="ELECTRA",
    names=encoder_names("electra.")
    | {
        "encoder.projection": "electra.embeddings_project",
        "masked_token_head.dense": "generator_predictions.dense",
        "masked_token_head.norm": "generator_predictions.LayerNorm",
        "masked_token_head": "generator_lm_head",
        "replaced_token_head.dense": "discriminator_predictions.dense",
        "replaced_token_head.score": "discriminator_predictions.dense_prediction",
        "classification_layer": "classifier.dense",
        "classification_head": "classifier.out_proj",
        "tag_head": "classifier",
        "answer_head": "qa_outputs",
        "choice_layer": "sequence_summary.summary",
        "choice_head": "classifier",
        "attention_pooling": "attention_pooling",
    },
    encoder="electra.",
    bare=(*BARE, "embeddings_project."),
    fused=FUSED,
    tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    heads=("generator_predictions.", "generator_lm_head.", "discriminator_predictions."),
    other_heads=(*TASK_HEADS, "sequence_summary."),
    buffers=buffers("electra."),
    config=CONFIG | {"embedding_width": "embedding_size"},
    fixed={"model_type": "electra", "hidden_act": "gelu"},
    assumed=ASSUMED,
    class_prefix="Electra",
    architectures={
        "masked": "ElectraForMaskedLM",
        "encoder": "ElectraModel",
        "replaced": "ElectraForPreTraining",
        "classification": "ElectraForSequenceClassification",
        "multilabel": "ElectraForSequenceClassification",
        "regression": "ElectraForSequenceClassification",
        "similarity": "ElectraModel",
        "tags": "ElectraForTokenClassification",
        "spans": "ElectraForQuestionAnswering",
        "choices": "ElectraForMultipleChoice",
    },
    inputs=("input_ids", "attention_mask", "token_type_ids"),
)
