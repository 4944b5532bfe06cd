"""Complete configurations for many languages by name: multilingual BERT, and XLM-R (Conneau et al. 2020)."""

from dataclasses import replace

from pipeline.config.data import VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.presets.bert import BERT_PRESETS
from pipeline.presets.roberta import ROBERTA_PRESETS

# google-research/bert, multilingual.md: one cased vocabulary for 104 languages; the languages' shares are smoothed with
# exponent 0.7. The size of the vocabulary is that of bert-base-multilingual-cased. Two choices are ours: the size of
# the alphabet, and that each sequence has only one language.
MBERT_VOCABULARY = VocabularySettings(size=119_547, lowercase=False, characters=10_000)


def multilingual(preset: Pretrain, exponent: float, vocabulary: VocabularySettings) -> Pretrain:
    """Return the preset with a vocabulary for many languages; each sequence has one language."""
    sampling = replace(preset.sampling, language_exponent=exponent, mix_languages=False)
    return replace(preset, sampling=sampling, vocabulary=vocabulary)


def xlm_roberta(preset: Pretrain, size: int) -> Pretrain:
    """Return a RoBERTa preset as an XLM-R with a unigram vocabulary of `size` entries."""
    vocabulary = VocabularySettings(kind="unigram", size=size, special_tokens="roberta")
    model = replace(preset.model, family="xlm-roberta")
    return multilingual(replace(preset, model=model), 0.3, vocabulary)


# Conneau et al. 2020, sections 3 and 4.1: RoBERTa's masks without pairs, 250,002 unigram entries, exponent 0.3,
# 1,500,000 steps of 8,192 rows. The paper does not state the other settings: these are RoBERTa's. In the tiny presets,
# all settings except the family and the exponent are ours.
MULTILINGUAL_PRESETS = {
    "mbert-tiny": multilingual(BERT_PRESETS["bert-tiny"], 0.7, replace(MBERT_VOCABULARY, size=8_192)),
    "mbert-base": multilingual(BERT_PRESETS["bert-base"], 0.7, MBERT_VOCABULARY),
    "xlm-roberta-tiny": xlm_roberta(ROBERTA_PRESETS["roberta-tiny"], 8_192),
    "xlm-roberta-base": xlm_roberta(replace(ROBERTA_PRESETS["roberta-base"], steps=1_500_000), 250_002),
}
