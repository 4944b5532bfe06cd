"""Complete configurations of RoBERTa by name: the sizes of Liu et al. 2019, and small sizes."""

from dataclasses import replace

from pipeline.config.data import FullSentences, Sampling, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.model import LearnedPositions
from pipeline.config.training import AdamW, Batch, LinearDecay
from pipeline.presets.bert import BERT_PRESETS, PUBLISHED

# Liu et al. 2019, table 9: 8,192 rows of full sentences, byte-level BPE, no pairs. Gradient clipping is ours; Liu et
# al. do not clip.
ROBERTA = replace(
    PUBLISHED,
    steps=500_000,
    vocabulary=VocabularySettings(kind="byte-bpe", size=50_265),
    sampling=Sampling(maximum_length=512, pairs=FullSentences()),
    batch=Batch(rows_per_step=8_192),
    optimizer=AdamW(learning_rate=6e-4, beta2=0.98, epsilon=1e-6),
    schedule=LinearDecay(warmup_share=0.048),
)


def roberta(preset: Pretrain, base: Pretrain = ROBERTA) -> Pretrain:
    """Return `base` with a RoBERTa of the size of a BERT preset.

    A RoBERTa has one segment. Its position indices start at 2, because index 1 belongs to the padding entry.
    """
    model = replace(
        preset.model,
        family="roberta",
        segments=1,
        positions=LearnedPositions(first=2),
        layer_norm_epsilon=1e-5,
    )
    return replace(base, model=model)


def _small_roberta(preset: Pretrain) -> Pretrain:
    """Return a RoBERTa with the size, steps, learning rate and batch of a small BERT preset; these choices are ours."""
    vocabulary = replace(preset.vocabulary, kind="byte-bpe")
    sampling = replace(preset.sampling, pairs=FullSentences())
    return roberta(preset, replace(preset, vocabulary=vocabulary, sampling=sampling))


ROBERTA_PRESETS = {
    "roberta-tiny": _small_roberta(BERT_PRESETS["bert-tiny"]),
    "roberta-mini": _small_roberta(BERT_PRESETS["bert-mini"]),
    "roberta-base": roberta(BERT_PRESETS["bert-base"]),
    "roberta-large": roberta(
        BERT_PRESETS["bert-large"],
        replace(
            ROBERTA, optimizer=replace(ROBERTA.optimizer, learning_rate=4e-4), schedule=LinearDecay(warmup_share=0.06)
        ),
    ),
}
