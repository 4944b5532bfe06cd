"""Complete configurations of the encoders that we recommend: ModernBERT's parts in deep and narrow shapes."""

from pipeline.config.data import VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.training import StableAdamW, WarmupStableDecay
from pipeline.presets.modernbert import SAMPLING, shape

# The parts, local attention, masks and optimizer are those of ModernBERT (Warner et al. 2024), and `encoder-b` has the
# shape of its base. Deep and narrow shapes, weight decay 0.1 and vocabularies that grow with the text are those of
# GPT-BERT (Charpentier and Samuel 2024). Ours are the rates, steps of 32,768 tokens, 200 steps of warm-up, and a decay
# over the last fifth of the steps. `encoder-b` follows the same rules and has not been trained.


def encoder(layers: int, width: int, feed_forward: int, steps: int, rate: float = 2e-3) -> Pretrain:
    """Return an encoder with heads of width 64 that reads 256 rows of 128 tokens per step."""
    return Pretrain(
        steps=steps,
        vocabulary=VocabularySettings(kind="byte-bpe", size="auto"),
        sampling=SAMPLING,
        model=shape(layers, width, feed_forward),
        optimizer=StableAdamW(learning_rate=rate, beta2=0.98, epsilon=1e-6, weight_decay=0.1),
        schedule=WarmupStableDecay(warmup_steps=200, decay_share=0.2),
    )


ENCODER_PRESETS: dict[str, Pretrain] = {
    "encoder-xs": encoder(12, 192, 512, 3_000),
    "encoder-s": encoder(12, 384, 1_024, 10_000),
    "encoder-b": encoder(22, 768, 1_152, 100_000, 8e-4),  # the rate of modernbert-base
}
