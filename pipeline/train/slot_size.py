"""Advice on the size of slots for GPUs: a small slot leaves a GPU waiting for the launches of its kernels."""

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import Phase

BUSY_TOKENS = 32_768
"""Tokens of a slot with which an H200 trains bert-base at 87% of its highest speed (jobs/RESULTS.md)."""


def advised_rows(phase: Phase, workers: int) -> int:
    """Return the rows of a slot that keep a GPU busy: BUSY_TOKENS of the longest rows, as far as the step allows.

    Each of the `workers` needs a slot in every step, and the rows of a slot divide those of a step.
    """
    batch = phase.batch
    fewest = batch.warmup_rows or batch.rows_per_step
    most = max(1, min(BUSY_TOKENS // phase.sampling.row_length, fewest // workers))
    return max(rows for rows in range(1, most + 1) if batch.rows_per_step % rows == fewest % rows == 0)


def slot_advice(config: Pretrain) -> str | None:
    """Return a line about the slots of a run on GPUs that are too small; None if all phases have slots large enough."""
    for prefix, phase in zip(("batch", "phases"), config.all_phases):
        rows, advised = phase.batch.rows_per_slot, advised_rows(phase, config.worker_range.most)
        if advised >= 2 * rows:
            return (
                f"note: {prefix}.rows_per_slot ({rows}) gives a GPU {rows * phase.sampling.row_length:,} tokens at a "
                f"time; it is faster with {BUSY_TOKENS:,}, if its memory is enough: --{prefix}.rows-per-slot {advised}"
            )
    return None
