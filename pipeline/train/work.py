"""Inputs of the training loop on one rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from pipeline.batch import AnyBatch
from pipeline.config.jobs import Pretrain
from pipeline.evaluation.blimp import Blimp
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Work:
    """Inputs of the loop on one rank."""

    config: Pretrain
    folder: str
    vocabulary: Vocabulary
    attempt: int = 0
    """As in Job."""
    rank: int
    world: int
    device: torch.device
    autocast: torch.autocast
    heldout: Sequence[AnyBatch]
    """This rank's held-out batches of the phase."""
    blimp: Blimp | None = None
    """Minimal pairs to evaluate on; None if evaluation.blimp is not set."""
    peak_flops: float | None = None
    """Peak operations per second of this rank's device; None where unknown."""
    log: Callable[[int, dict[str, float]], None]
    """Log (steps done, metrics); a no-op on ranks other than 0."""
    flush: Callable[[], None]
    """Flush logged metrics before a checkpoint is published.

    A run that resumes from a checkpoint logs only later steps. Called from another thread.
    """
    say: Callable[[str], None] = print
    """Report a line to the user; a no-op on ranks other than 0. Called from other threads too."""
    leaving: Callable[[], bool] = lambda: False
    """Return whether a node of the run will be preempted.

    All ranks call this function after the same steps and get the same answer.
    """
    worker_name: str = "worker 0"
    """Name of this rank in messages."""
    records: bool = True
    """Whether placement.graphs records. Otherwise slots are filled and gradients kept as with graphs, but each operator
    is launched on its own: so tests run on a CPU.
    """
    drop_graphs: Callable[[], None] | None = None
    """Record that a new run has no graphs, because a rank could not record them; None: such a run stops."""
