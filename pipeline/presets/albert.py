"""Complete configurations of ALBERT by name: the sizes of Lan et al. 2020, and small sizes."""

from dataclasses import replace
from typing import Any

from pipeline.config.data import NgramMasking, Sampling, SentenceOrder
from pipeline.config.jobs import Pretrain
from pipeline.config.training import Batch, Lamb, LinearDecay
from pipeline.presets.bert import BERT_PRESETS, PUBLISHED, bert

# Lan et al. 2020, section 4.1: LAMB, 4,096 rows of at most 512 tokens, 125,000 steps, a vocabulary of 30,000 unigram
# pieces. Warm-up: 3,125 steps (google-research/albert).
ALBERT = replace(
    PUBLISHED,
    steps=125_000,
    sampling=Sampling(maximum_length=512),
    batch=Batch(rows_per_step=4_096),
    optimizer=Lamb(learning_rate=1.76e-3),
    schedule=LinearDecay(warmup_share=0.025),
)


def albert(preset: Pretrain, *, size: int = 30_000, **parts: Any) -> Pretrain:
    """Return an ALBERT of the size of a BERT preset, with the model settings `parts` replaced.

    The vocabulary has `size` unigram pieces. Batch, steps, optimizer and schedule are those of the preset.
    """
    model = replace(preset.model, **{"family": "albert", "embedding_width": 128, "activation": "gelu_new"} | parts)
    sampling = replace(preset.sampling, pairs=SentenceOrder(), masking=NgramMasking())
    vocabulary = replace(preset.vocabulary, kind="unigram", size=size, lowercase=True)
    return replace(preset, model=model, sampling=sampling, vocabulary=vocabulary)


# Presets above base size have no dropout. Lan et al. 2020, section 4.8, remove dropout from xxlarge, and the released
# models of version 2 were trained without dropout (google-research/albert).
UNDROPPED: dict[str, Any] = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
ALBERT_PRESETS = {
    # Steps, batches and optimizer of the tiny and mini presets are those of the small BERTs. The embeddings of
    # albert-tiny have half of the model's width; the usual 128 would be the whole width.
    "albert-tiny": albert(BERT_PRESETS["bert-tiny"], size=8_192, embedding_width=64),
    "albert-mini": albert(BERT_PRESETS["bert-mini"]),
    "albert-base": albert(bert(12, 768, 12, ALBERT)),
    "albert-large": albert(bert(24, 1024, 16, ALBERT), **UNDROPPED),
    # 16 heads, as in the released model. The paper's rule, one head per 64 dimensions, would give 32 heads.
    "albert-xlarge": albert(bert(24, 2048, 16, ALBERT), **UNDROPPED),
    "albert-xxlarge": albert(bert(12, 4096, 64, ALBERT), **UNDROPPED),
}
