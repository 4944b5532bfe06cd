"""Complete configurations of ModernBERT by name: the sizes of Warner et al. 2024, and small sizes."""

from dataclasses import replace

from pipeline.config.data import FullSentences, Sampling, TokenMasking, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.model_parts import LocalAttention, RotaryPositions
from pipeline.config.phases import TwoPhases
from pipeline.config.training import Batch, StableAdamW, WarmupStableDecay

# Warner et al. 2024, section 2 and appendix A: 30% masks, no pairs, StableAdamW, a constant rate between warm-up and
# decay, a batch that grows, weight decay 1e-5, first sequences of 1,024 tokens with theta 10,000, then of 8,192 tokens
# with theta 160,000 in the layers with global attention. Rows mask tokens as BERT's do.
SAMPLING = Sampling(pairs=FullSentences(), masking=TokenMasking(share=0.3))
OPTIMIZER = StableAdamW(learning_rate=8e-4, beta2=0.98, epsilon=1e-6, weight_decay=1e-5)
VOCABULARY = VocabularySettings(kind="byte-bpe", size=50_368)


def shape(layers: int, width: int, feed_forward: int) -> Model:
    """Return a ModernBERT with heads of width 64.

    Published models have dropout of 0.1 on the outputs of attention only. This is not a setting; ours have no dropout.
    """
    return Model(
        family="modernbert",
        layers=layers,
        width=width,
        heads=width // 64,
        feed_forward=feed_forward,
        inner="geglu",
        block="pre-norm",
        bias=False,
        maximum_positions=8_192,
        segments=0,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        layer_norm_epsilon=1e-5,
        positions=RotaryPositions(theta=10_000.0, local_theta=10_000.0),
        attention=LocalAttention(window=128, global_every=3),
    )


def small(layers: int, width: int, steps: int, rate: float, vocabulary: VocabularySettings = VOCABULARY) -> Pretrain:
    """Return a small ModernBERT with the feed-forward width of Ettin's models, 1.5 * width (Weller et al. 2025).

    Steps, rate, warm-up and batch are those of a small BERT preset, and all rows have length 128. These choices are
    ours. The shapes of `small` and `medium` are those of Ettin 17M and 32M.
    """
    return Pretrain(
        steps=steps,
        vocabulary=vocabulary,
        sampling=SAMPLING,
        model=shape(layers, width, 3 * width // 2),
        optimizer=replace(OPTIMIZER, learning_rate=rate),
        schedule=WarmupStableDecay(warmup_steps=steps // 10, decay_share=0.2),
    )


def published(model: Model, steps: int, rate: float, batch: Batch, warmup_steps: int) -> Pretrain:
    """Return a published size with two phases; the second has the same number of tokens per step.

    The paper counts in tokens, this file in steps: 1.7 trillion tokens of length 1,024, then 300 billion of length
    8,192, of which the last 50 billion are the decay. Deviations from the paper:

    - The second phase has the rate of the first. In the paper, it has 3e-4 for base and 5e-5 for large.
    - The first phase of large has one rate. In the paper, it has 5e-4 for 900 billion tokens, is then rolled back, and
      has 5e-5 for 800 billion. So `modernbert-large` is not the paper's recipe.
    - Large starts from random weights. In the paper, it starts from the weights of base.
    - The decay is linear. In the paper, it is 1-sqrt.
    - A gradient with a norm above 1 is clipped.
    - There is no dropout (see `shape`), and the vocabulary is trained here.
    """
    return Pretrain(
        steps=steps,
        vocabulary=VOCABULARY,
        sampling=replace(SAMPLING, maximum_length=1_024),
        model=model,
        batch=batch,
        phases=TwoPhases(
            share=0.15,
            maximum_length=8_192,
            rows_per_step=batch.rows_per_step // 8,
            rows_per_slot=batch.slot_rows // 8,
            theta=160_000.0,
        ),
        optimizer=replace(OPTIMIZER, learning_rate=rate),
        schedule=WarmupStableDecay(warmup_steps=warmup_steps, decay_share=0.025),
    )


TINY = small(4, 128, 600, 2e-3, replace(VOCABULARY, size=8_192))
MODERNBERT_PRESETS: dict[str, Pretrain] = {
    "modernbert-tiny": replace(TINY, batch=Batch(rows_per_step=64)),
    "modernbert-mini": small(4, 256, 20_000, 1e-3),
    "modernbert-small": small(7, 256, 20_000, 1e-3),
    "modernbert-medium": small(10, 384, 100_000, 5e-4),
    # The batch grows for 50 billion tokens, the rate for 3 billion.
    "modernbert-base": published(
        shape(22, 768, 1_152),
        428_000,
        8e-4,
        Batch(rows_per_step=4_608, rows_per_slot=32, warmup_steps=18_200, warmup_rows=768),
        2_800,
    ),
    # The batch grows for 10 billion tokens, the rate for 2 billion.
    "modernbert-large": published(
        shape(28, 1_024, 2_624),
        400_000,
        5e-4,
        Batch(rows_per_step=4_928, rows_per_slot=32, warmup_steps=3_600, warmup_rows=448),
        1_460,
    ),
}
