"""Estimate the memory of a training step on a GPU, by one formula for each family of models."""

from dataclasses import dataclass

import torch

from pipeline.config.jobs import Pretrain
from pipeline.config.model import FamilyName
from pipeline.config.phases import Phase
from pipeline.model.encoder import encoders_in
from pipeline.model.flops import PEAKS, TokenCounts, chip_of, keys_per_token
from pipeline.objectives.table import build_objective

FREE_SHARE = 0.8
"""Share of a GPU's free memory that a step may need by the formula. The rest is for the CUDA context, for the gaps of
the allocator, and for what the formula does not count: buffers of several workers, and a teacher.
"""
STATE_BYTES = 16
"""Bytes per parameter: the parameter, its gradient and both moments of Adam, in float32."""
INPUT_BYTES = 4
"""Bytes per token and unit of the width that a recomputed layer keeps: its input, in float32."""
UNCAST_FACTOR = 2
"""Bytes for a token in float32, by those in bfloat16."""


@dataclass(frozen=True, kw_only=True)
class TokenBytes:
    """Bytes that a step in bfloat16, without torch.compile, needs for each token of a slot."""

    width: float
    """Per layer and unit of the width."""
    inner: float
    """Per layer and output of the first feed-forward map."""
    once: float
    """Per output of the first feed-forward map, in one layer at a time."""
    labels: float
    """Per masked token and entry of the vocabulary."""
    scores: float = 0.0
    """Per layer, head and key of the token, where attention computes its scores in memory."""
    head: float = 0.0
    """Per layer and head."""
    once_width: float = 0.0
    """Per unit of the width, in one layer at a time."""


TOKEN_BYTES: dict[FamilyName, TokenBytes] = {
    "bert": TokenBytes(width=29.0, inner=2.7, once=3.0, labels=0.6),
    "roberta": TokenBytes(width=29.2, inner=2.4, once=3.5, labels=0.4),
    "xlm-roberta": TokenBytes(width=29.2, inner=2.4, once=3.5, labels=0.4),
    "electra": TokenBytes(width=33.0, inner=0.9, once=5.9, labels=0.1),
    "distilbert": TokenBytes(width=29.2, inner=2.3, once=3.5, labels=0.4),
    "albert": TokenBytes(width=29.5, inner=2.0, once=3.9, labels=0.0),
    "modernbert": TokenBytes(width=25.5, inner=3.4, once=2.7, labels=0.3),
    "deberta": TokenBytes(width=41.2, inner=0.0, once=11.6, labels=0.0, scores=10.5, once_width=56.4),
    "deberta-v2": TokenBytes(width=50.3, inner=0.0, once=4.5, labels=0.0, scores=7.0),
    "longformer": TokenBytes(width=29.4, inner=1.9, once=4.0, labels=0.5),
    "bigbird": TokenBytes(width=106.6, inner=0.0, once=10.8, labels=0.0, scores=4.0, head=1_100.0),
}
"""Family -> bytes, fitted to the peak memory on a CUDA device that computes nothing (tests/cuda/memory.py)."""


def step_bytes(config: Pretrain, phase: Phase, rows: int, gpu: str = "") -> int:
    """Return about how many bytes a step needs with slots of `rows` of the longest rows, on a GPU of this name."""
    fixed, row = _fixed_and_row(config, phase, gpu)
    return round(fixed + rows * row)


def fitting_rows(config: Pretrain, phase: Phase, free: int, gpu: str = "") -> int:
    """Return the rows per slot, at least 1, with which a step fits into FREE_SHARE of the free bytes of a GPU."""
    fixed, row = _fixed_and_row(config, phase, gpu)
    return max(1, int((FREE_SHARE * free - fixed) // row))


def _fixed_and_row(config: Pretrain, phase: Phase, gpu: str) -> tuple[float, float]:
    """Return the bytes that a step needs for its weights, and for each row of a slot."""
    with torch.device("meta"):
        module = build_objective(config.objective, phase.sampling, config.model, config.vocabulary.most_entries)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    token_bytes, sampling = TOKEN_BYTES[config.model.family], phase.sampling
    token, length = 0.0, sampling.maximum_length
    row = TokenCounts(tokens=length, squares=length * length, masked=0)
    for encoder in encoders_in(module):
        model, layers = encoder.settings, len(encoder.applied_layers)
        keys = sum(keys_per_token(model, number, row) for number in range(layers)) / layers
        layer = (
            token_bytes.width * model.width
            + token_bytes.inner * model.inner_rows
            + (token_bytes.scores * keys + token_bytes.head) * model.heads
        )
        if config.placement.recompute and config.placement.recompute_products:
            token += layers * INPUT_BYTES * model.width + layer
        else:
            token += layers * layer
        token += token_bytes.once * model.inner_rows + token_bytes.once_width * model.width
    if sampling.masks:
        token += token_bytes.labels * sampling.masking.share * config.vocabulary.most_entries
    factor = UNCAST_FACTOR if _is_uncast(config, gpu) else 1
    return STATE_BYTES * parameters, factor * token * sampling.row_length


def _is_uncast(config: Pretrain, gpu: str) -> bool:
    """Return whether a step is computed in float32."""
    chip, precision = chip_of(gpu), config.placement.precision
    return precision in ("float32", "tf32") or (
        precision == "auto" and chip is not None and "bfloat16" not in PEAKS[chip]
    )
