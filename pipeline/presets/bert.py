"""Complete configurations of BERT by name: the sizes of Devlin et al. 2019 and Turc et al. 2019, and continued runs."""

from dataclasses import replace

from pipeline.config.data import VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.phases import TwoPhases
from pipeline.config.training import AdamW, Batch, LinearDecay

# Devlin et al. 2019, section A.2: 256 rows per step, learning rate 1e-4, warm-up in 10,000 of 1,000,000 steps. Small
# models and short runs need a higher rate and a longer warm-up, so the rates and warm-ups of `bert-tiny` to
# `bert-medium` are ours. These presets have one phase of length 128; the published recipe has length 512 in the last
# tenth of the steps.
PUBLISHED = Pretrain(steps=1_000_000)


def bert(layers: int, width: int, heads: int, base: Pretrain = PUBLISHED) -> Pretrain:
    """Return `base` with a BERT of the given size and feed-forward width 4 * width (Devlin et al. 2019, section 3)."""
    return replace(base, model=Model(layers=layers, width=width, heads=heads, feed_forward=4 * width))


def small_model(steps: int, rate: float) -> Pretrain:
    """Return settings for a model that a laptop or one GPU trains in minutes to hours; `rate` is the learning rate."""
    return replace(PUBLISHED, steps=steps, optimizer=AdamW(learning_rate=rate), schedule=LinearDecay(warmup_share=0.1))


# The sizes of tiny to medium are those of Turc et al. 2019 (google-research/bert, "24 smaller models").
BERT_PRESETS = {
    "bert-tiny": bert(
        2,
        128,
        2,
        replace(
            small_model(600, 2e-3),
            vocabulary=VocabularySettings(size=8_192),
            batch=Batch(rows_per_step=64),
        ),
    ),
    "bert-mini": bert(4, 256, 4, small_model(20_000, 1e-3)),
    "bert-small": bert(4, 512, 8, small_model(100_000, 5e-4)),
    "bert-medium": bert(8, 512, 8, small_model(100_000, 5e-4)),
    "bert-base": bert(12, 768, 12, replace(PUBLISHED, phases=TwoPhases())),  # Devlin et al. 2019
    "bert-large": bert(24, 1024, 16, replace(PUBLISHED, phases=TwoPhases())),  # Devlin et al. 2019
}
# Training continues from a published model (--init), which determines the sizes and the vocabulary. For additional
# steps, google-research/bert's README advises learning rate 2e-5, a fifth of the original 1e-4; `continue-small` has a
# fifth of bert-mini's rate. Steps and warm-up are ours.
CONTINUED = replace(
    PUBLISHED, steps=10_000, optimizer=AdamW(learning_rate=2e-5), schedule=LinearDecay(warmup_share=0.1)
)
CONTINUED_PRESETS = {
    "continue": CONTINUED,
    "continue-small": replace(
        CONTINUED, steps=2_000, optimizer=AdamW(learning_rate=2e-4), batch=Batch(rows_per_step=64)
    ),
}
