"""Complete configurations of ELECTRA by name: the sizes of Clark et al. 2020, and small sizes."""

from dataclasses import replace
from typing import Any

from pipeline.config.data import FullSentences, Sampling, TokenMasking
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Replaced
from pipeline.config.training import AdamW, Batch, LinearDecay
from pipeline.presets.bert import BERT_PRESETS, bert

# Clark et al. 2020, table 6; google-research/electra masks 85% of the drawn positions and leaves the rest unchanged.
# Rows with one segment are ours; Clark et al. split contiguous text into two segments.
ELECTRA_SAMPLING = Sampling(
    maximum_length=128, pairs=FullSentences(), masking=TokenMasking(mask_share=0.85, random_share=0.0)
)


def electra(preset: Pretrain, **parts: Any) -> Pretrain:
    """Return an ELECTRA of the size of a BERT preset, with the model settings `parts` replaced.

    Batch, steps, optimizer and schedule are those of the preset.
    """
    model = replace(preset.model, family="electra", **parts)
    sampling = replace(ELECTRA_SAMPLING, maximum_length=preset.sampling.maximum_length)
    return replace(preset, model=model, sampling=sampling, objective=Replaced())


ELECTRA_PRESETS = {
    # Sizes, steps and batches are those of the small BERTs. The generator has a quarter of the discriminator's width,
    # as in the paper.
    "electra-tiny": electra(BERT_PRESETS["bert-tiny"]),
    "electra-mini": electra(BERT_PRESETS["bert-mini"]),
    # The generator has a quarter of the discriminator's width, as in the paper; in the released electra-small, both
    # have the same width.
    "electra-small": electra(
        replace(
            bert(12, 256, 4),
            batch=Batch(rows_per_step=128),
            optimizer=AdamW(learning_rate=5e-4, epsilon=1e-6),
            schedule=LinearDecay(warmup_share=0.01),
        ),
        embedding_width=128,
    ),
    "electra-base": replace(
        electra(
            replace(
                bert(12, 768, 12),
                steps=766_000,
                sampling=Sampling(maximum_length=512),
                optimizer=AdamW(learning_rate=2e-4, epsilon=1e-6),
                schedule=LinearDecay(warmup_share=0.013),
            )
        ),
        objective=Replaced(generator_share=1 / 3),
    ),
}
