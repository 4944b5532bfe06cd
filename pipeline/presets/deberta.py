"""Complete configurations of DeBERTa by name: sizes of He et al. 2021 and 2023, and tiny sizes."""

from dataclasses import replace
from typing import Any

from pipeline.config.data import FullSentences, NgramMasking, Sampling, TokenMasking, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.model_parts import BucketedAttention, DisentangledAttention, NoPositions
from pipeline.config.objective import Masked, Replaced
from pipeline.config.training import AdamW, Batch
from pipeline.presets.bert import BERT_PRESETS, PUBLISHED, bert

# He et al. 2021, hyper-parameters of pre-training at base size: 2,048 rows of at most 512 tokens, 1,000,000 steps, rate
# 2e-4, warm-up in 10,000 steps. The paper also masks spans of up to three. The default of microsoft/DeBERTa, max_ngram
# 1, masks single tokens. Ours: runs of one to three whole words, drawn as in ALBERT. The enhanced mask decoder predicts
# them. The published vocabulary has as many entries and BERT's special tokens; one that is trained here has RoBERTa's.
DEBERTA = replace(
    PUBLISHED,
    vocabulary=VocabularySettings(kind="byte-bpe", size=50_265),
    sampling=Sampling(maximum_length=512, pairs=FullSentences()),
    batch=Batch(rows_per_step=2_048),
    optimizer=AdamW(learning_rate=2e-4),
)
# microsoft/DeBERTa, experiments/language_model/rtd.sh and rtd_*.json: 256 rows of at most 512 tokens, 1,000,000 steps,
# rate 1e-4, warm-up in 10,000 steps; xsmall has 64 rows and rate 3e-4. The generator has the width of the model and
# half of its layers, embeddings are shared without gradient (He et al. 2023), and all masked positions have [MASK]. The
# paper trains with 8,192 rows. Ours: `small` is trained as `base`, and the generator has the plain masked-token head.
DEBERTA_V3 = replace(
    PUBLISHED,
    vocabulary=VocabularySettings(kind="unigram", size=128_100, lowercase=False),
    sampling=Sampling(maximum_length=512),
)
DEBERTA_V3_XSMALL = replace(DEBERTA_V3, batch=Batch(rows_per_step=64), optimizer=AdamW(learning_rate=3e-4))
DISENTANGLED: dict[str, Any] = {"segments": 0, "layer_norm_epsilon": 1e-7, "positions": NoPositions()}


def _deberta(preset: Pretrain) -> Pretrain:
    """Return a DeBERTa of the size of a BERT preset, with its batch, steps, optimizer and schedule."""
    model = replace(preset.model, family="deberta", attention=DisentangledAttention(), **DISENTANGLED)
    sampling = replace(preset.sampling, pairs=FullSentences(), masking=NgramMasking())
    vocabulary = replace(preset.vocabulary, kind="byte-bpe")
    objective = Masked(decoder="enhanced")
    return replace(preset, model=model, sampling=sampling, vocabulary=vocabulary, objective=objective)


def _deberta_v3(preset: Pretrain) -> Pretrain:
    """Return a DeBERTa v3 of the size of a BERT preset, with its batch, steps, optimizer and schedule."""
    model = replace(preset.model, family="deberta-v2", attention=BucketedAttention(), **DISENTANGLED)
    masking = TokenMasking(mask_share=1.0, random_share=0.0)
    sampling = replace(preset.sampling, pairs=FullSentences(), masking=masking)
    vocabulary = replace(preset.vocabulary, kind="unigram", lowercase=False)
    objective = Replaced(generator_share=1.0, generator_depth=0.5, embedding_sharing="gradient-disentangled")
    return replace(preset, model=model, sampling=sampling, vocabulary=vocabulary, objective=objective)


DEBERTA_PRESETS = {
    # Steps, batches and optimizer of the tiny presets are those of bert-tiny.
    "deberta-tiny": _deberta(BERT_PRESETS["bert-tiny"]),
    "deberta-base": _deberta(bert(12, 768, 12, DEBERTA)),
    "deberta-v3-tiny": _deberta_v3(BERT_PRESETS["bert-tiny"]),
    "deberta-v3-xsmall": _deberta_v3(bert(12, 384, 6, DEBERTA_V3_XSMALL)),
    "deberta-v3-small": _deberta_v3(bert(6, 768, 12, DEBERTA_V3)),
    "deberta-v3-base": _deberta_v3(bert(12, 768, 12, DEBERTA_V3)),
}
