"""Advice on the size of slots for GPUs: a small slot leaves a GPU waiting for the launches of its kernels."""

import torch

from pipeline.config.jobs import Pretrain, recording_problem
from pipeline.config.model_parts import BucketedAttention, DisentangledAttention, LocalAttention
from pipeline.config.needs import ENHANCED_DECODER, PAIR_HEAD
from pipeline.config.phases import Phase
from pipeline.model.encoder import encoders_in
from pipeline.objectives.table import build_objective

BUSY_TOKENS = 32_768
"""Tokens of a slot with which an H200 trains bert-base at 87% of its highest speed (jobs/results/gpu-speed.md)."""
LAUNCH_BOUND_TOKENS = 8_192
"""Tokens of a slot up to which an H100 trains bert-base faster with CUDA graphs (jobs/results/gpu-speed.md)."""
LAUNCH_SECONDS = 24e-6
"""Seconds in which a GPU's host launches the kernels of an operator. Measured: an H200 waits for the 995 operators of a
step of bert-base with one slot of 32 rows, which takes 23.7 ms in eager code (jobs/results/gpu-speed.md).
"""
LAYER_OPERATORS, SHARED_LAYER_OPERATORS = 70, 54
"""Operators that launch kernels for a layer, forward and backward: one with weights of its own, or with shared ones."""
ATTENTION_OPERATORS: dict[type, int] = {DisentangledAttention: 158, BucketedAttention: 158, LocalAttention: 79}
"""Attention -> operators for a layer with it, where they are not LAYER_OPERATORS."""
ENCODER_OPERATORS, PAIR_OPERATORS = 100, 38
"""Operators for the rest of an encoder with its head and its loss, and for a label of pairs of segments."""


def slot_operators(config: Pretrain) -> int:
    """Return about how many operators launch kernels for a slot, in eager code on a GPU. A teacher's are not counted.

    The figures were counted for the families' presets on a CUDA device that computes nothing (tests/cuda/budget.py).
    """
    model = config.model
    with torch.device("meta"):
        module = build_objective(config.objective, config.sampling, model, config.vocabulary.most_entries)
    applied = sum(len(encoder.applied_layers) for encoder in encoders_in(module))
    applied += ENHANCED_DECODER in config.objective.needs  # it applies the last layer again
    each = ATTENTION_OPERATORS.get(
        type(model.attention), SHARED_LAYER_OPERATORS if model.shares_layers else LAYER_OPERATORS
    )
    paired = PAIR_HEAD in config.sampling.pairs.needs
    return each * applied + ENCODER_OPERATORS * len(encoders_in(module)) + PAIR_OPERATORS * paired


def advised_rows(phase: Phase, workers: int) -> int:
    """Return the rows of a slot that keep a GPU busy: BUSY_TOKENS of the longest rows, as far as the step allows."""
    return phase.batch.dividing_rows(BUSY_TOKENS // phase.sampling.row_length, workers)


def slot_advice(config: Pretrain) -> str | None:
    """Return a line about the slots of a run on GPUs that are too small; None if all phases have slots large enough.

    Slots that are chosen, `auto`, need no advice.
    """
    graphs = config.placement.graphs == "off" and recording_problem(config) is None
    otherwise = ", or with --placement.graphs" * graphs
    for phase in config.slotted_phases:
        if phase.automatic:
            continue
        names, rows, advised = phase.names, phase.batch.slot_rows, advised_rows(phase, config.worker_range.most)
        if advised >= 2 * rows:
            return (
                f"note: {names.rows_per_slot} ({rows}) gives a GPU {rows * phase.sampling.row_length:,} tokens at a "
                f"time; it is faster with {BUSY_TOKENS:,}, if its memory is enough: {names.slots_option(advised)}"
                f"{otherwise if rows * phase.sampling.row_length <= LAUNCH_BOUND_TOKENS else ''}"
            )
    return None
