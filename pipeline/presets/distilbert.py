"""Complete configurations of DistilBERT by name: the size of Sanh et al. 2019, and small sizes."""

from dataclasses import replace

from pipeline.config.data import FullSentences, Sampling
from pipeline.config.jobs import Pretrain
from pipeline.config.training import AdamW, Batch, LinearDecay
from pipeline.presets.bert import BERT_PRESETS, PUBLISHED

# Sanh et al. 2019, sections 2 and 3: half the layers of a BERT, no segments, no pooler, no sentence pairs, 4,096 rows
# per step. Learning rate, warm-up, epsilon, weight decay and clipping are the defaults of the authors' code
# (huggingface/transformers, examples/research_projects/distillation). Steps are ours: three epochs (the authors'
# default) over the 4.3 billion tokens of Wikipedia and BooksCorpus. The authors mask rare entries more often; we mask
# all entries alike.
DISTILBERT = replace(
    PUBLISHED,
    steps=7_000,
    sampling=Sampling(maximum_length=512, pairs=FullSentences()),
    batch=Batch(rows_per_step=4_096),
    optimizer=AdamW(learning_rate=5e-4, weight_decay=0.0, epsilon=1e-6, clip_norm=5.0),
    schedule=LinearDecay(warmup_share=0.05),
)


def distilbert(preset: Pretrain, base: Pretrain) -> Pretrain:
    """Return `base` with a DistilBERT that has half the layers of a BERT preset, and otherwise the preset's sizes."""
    model = replace(preset.model, family="distilbert", layers=preset.model.layers // 2, segments=0)
    return replace(base, model=model)


def _small_distilbert(preset: Pretrain) -> Pretrain:
    """Return a DistilBERT with half the layers of a small BERT preset.

    Steps, learning rate and batch are those of the BERT preset. These choices are ours.
    """
    return distilbert(preset, replace(preset, sampling=replace(preset.sampling, pairs=FullSentences())))


DISTILBERT_PRESETS = {
    "distilbert-tiny": _small_distilbert(BERT_PRESETS["bert-tiny"]),
    "distilbert-mini": _small_distilbert(BERT_PRESETS["bert-mini"]),
    "distilbert-base": distilbert(BERT_PRESETS["bert-base"], DISTILBERT),
}
