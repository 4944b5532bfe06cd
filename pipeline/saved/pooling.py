"""Pooling, prompts and maximum length of a run's model: they turn hidden states into a vector of a text."""

from typing import Literal

from pipeline.config.jobs import Pretrain

Pooling = Literal["mean", "cls", "attention"]
"""Vector of a text: the mean of the last hidden states, the last hidden state of [CLS], or a learned weighted mean."""
PROMPTS = "config_sentence_transformers.json"
"""File with the prompts."""
ATTENTION = "1_AttentionPooling"
"""Folder of a learned attention pooling, in checkpoints and exports."""
DENSE = "2_Dense"
"""Folder of a projection of text vectors, in checkpoints and exports."""


def pooling_of(settings: Pretrain) -> Pooling:
    """Return the pooling of a run's model: the objective's pooling if it has one, else the mean."""
    return settings.objective.pooling


def prompts_of(settings: Pretrain) -> dict[str, str]:
    """Return {name: prompt} of the prompts that a run was trained with, under the names of sentence-transformers."""
    return {name: text for name, text in zip(("query", "document"), settings.sampling.prompts) if text}


def trained_length(settings: Pretrain) -> int:
    """Return the length in tokens of the longest training sequences."""
    return max(phase.sampling.maximum_length for phase in settings.all_phases)


def exported_length(settings: Pretrain) -> int:
    """Return the maximum tokens of a text that a run's model reads for a vector, at most its positions."""
    return min(settings.sampling.exported_length or trained_length(settings), settings.model.maximum_positions)
