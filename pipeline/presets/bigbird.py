"""Complete configurations of BigBird by name: the base size of Zaheer et al. 2020, and a small size."""

from pipeline.config.data import FullSentences, Sampling, VocabularySettings, WholeWordMasking
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.config.training import AdamW, Batch, LinearDecay


def _bigbird(layers: int, width: int, maximum_positions: int, attention: BlockSparseAttention) -> Model:
    """Return a BigBird with heads of width 64 and feed-forward width 4 * width."""
    return Model(
        family="bigbird",
        layers=layers,
        width=width,
        heads=width // 64,
        feed_forward=4 * width,
        activation="gelu_new",
        maximum_positions=maximum_positions,
        attention=attention,
    )


def _sampling(maximum_length: int) -> Sampling:
    """Return rows of full sentences without pairs, in which whole words are masked (run_pretraining.py)."""
    return Sampling(maximum_length=maximum_length, pairs=FullSentences(), masking=WholeWordMasking())


BIGBIRD_PRESETS: dict[str, Pretrain] = {
    # Size, rate and vocabulary are those of bert-tiny. Its rows are eight times as long, and a step has a quarter as
    # many. Blocks have 16 tokens, so that attention is full up to 176 tokens only. These choices are ours.
    "bigbird-tiny": Pretrain(
        steps=600,
        vocabulary=VocabularySettings(kind="unigram", size=8_192, lowercase=False),
        sampling=_sampling(1_024),
        model=_bigbird(2, 128, 1_024, BlockSparseAttention(block_size=16, random_blocks=3)),
        batch=Batch(rows_per_step=16, rows_per_slot=4),
        optimizer=AdamW(learning_rate=2e-3),
        schedule=LinearDecay(warmup_share=0.1),
    ),
    # Zaheer et al. 2020, appendix E.1: 256 rows of 4,096 tokens, rate 1e-4. Steps, warm-up and masking are those of
    # google-research/bigbird, pretrain/run_pretraining.py. The paper continues from RoBERTa's weights; here training
    # starts from random ones. The published vocabulary is GPT-2's BPE as a SentencePiece model of as many entries.
    "bigbird-base": Pretrain(
        steps=100_000,
        vocabulary=VocabularySettings(kind="unigram", size=50_358, lowercase=False),
        sampling=_sampling(4_096),
        model=_bigbird(12, 768, 4_096, BlockSparseAttention(block_size=64, random_blocks=3)),
        batch=Batch(rows_per_step=256, rows_per_slot=4),
        optimizer=AdamW(learning_rate=1e-4),
        schedule=LinearDecay(warmup_share=0.1),
    ),
}
