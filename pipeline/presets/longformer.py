"""Complete configurations of Longformer by name: the base size of Beltagy et al. 2020, and a tiny size."""

from dataclasses import replace

from pipeline.config.data import FullSentences, Sampling, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.model_parts import GlobalLocalAttention, LearnedPositions
from pipeline.config.training import AdamW, Batch, PolynomialDecay

# Beltagy et al. 2020, section 5: training continues from a RoBERTa (--init), whose positions are copied again and
# again. 65,000 steps of 64 rows of length 4,096; rate 3e-5, warm-up in 500 steps, then a decay to the power 3; window
# 512 in all layers, no global tokens; other settings as RoBERTa (Liu et al. 2019). Gradient clipping is ours.
BASE = Pretrain(
    steps=65_000,
    vocabulary=VocabularySettings(kind="byte-bpe", size=50_265),
    sampling=Sampling(maximum_length=4_096, pairs=FullSentences()),
    model=Model(
        family="longformer",
        layers=12,
        width=768,
        heads=12,
        feed_forward=3_072,
        maximum_positions=4_096,
        segments=1,
        layer_norm_epsilon=1e-5,
        positions=LearnedPositions(first=2),
        attention=GlobalLocalAttention(window=512),
    ),
    batch=Batch(rows_per_step=64, rows_per_slot=4),
    optimizer=AdamW(learning_rate=3e-5, beta2=0.98, epsilon=1e-6),
    schedule=PolynomialDecay(warmup_share=500 / 65_000, power=3.0),
)
LONGFORMER_PRESETS: dict[str, Pretrain] = {
    # Ours: the layers and the vocabulary of roberta-tiny, as many tokens per step, and its rate, which also fits a
    # training from random weights.
    "longformer-tiny": replace(
        BASE,
        steps=600,
        vocabulary=VocabularySettings(kind="byte-bpe", size=8_192),
        sampling=Sampling(maximum_length=1_024, pairs=FullSentences()),
        model=replace(
            BASE.model,
            layers=2,
            width=128,
            heads=2,
            feed_forward=512,
            maximum_positions=1_024,
            attention=GlobalLocalAttention(window=64),
        ),
        batch=Batch(rows_per_step=8, rows_per_slot=4),
        optimizer=AdamW(learning_rate=2e-3),
        schedule=PolynomialDecay(warmup_share=0.1, power=1.0),
    ),
    "longformer-base": BASE,
}
