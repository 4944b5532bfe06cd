"""Phases of a run: consecutive steps with one sequence length, and their batch size."""

from dataclasses import dataclass, replace

from pipeline.config.checks import require, require_at_least
from pipeline.config.data import Sampling
from pipeline.config.training import Batch


@dataclass(frozen=True, kw_only=True)
class OnePhase:
    """All steps have the rows of `batch` at sampling.maximum_length."""


@dataclass(frozen=True, kw_only=True)
class TwoPhases:
    """The last steps have longer sequences (Devlin et al. 2019, A.2: length 128 for 90% of the steps, then 512).

    The second phase starts at the window after the last one that the first phase read, because the examples of a window
    are made for one length.
    """

    share: float = 0.1
    """Share of the steps that the second phase takes."""
    maximum_length: int = 512
    """Longest sequence of the second phase in tokens."""
    rows_per_step: int = 256
    """Rows of one optimiser update in the second phase."""
    rows_per_slot: int = 8
    """Rows of one slot in the second phase; with sequences four times as long, a quarter of the rows takes the same
    memory.
    """

    def __post_init__(self) -> None:
        require(0 < self.share < 1, f"phases.share ({self.share}) must lie between 0 and 1")
        require_at_least("phases.maximum_length", self.maximum_length, 8)
        require_at_least("phases.rows_per_slot", self.rows_per_slot, 1)
        require_at_least("phases.rows_per_step", self.rows_per_step, 1)
        require(
            self.rows_per_step % self.rows_per_slot == 0,
            f"phases.rows_per_step ({self.rows_per_step}) must be a multiple of phases.rows_per_slot "
            f"({self.rows_per_slot})",
        )


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps `first` to `end` - 1 of a run, with one sequence length."""

    first: int
    end: int
    sampling: Sampling
    batch: Batch


def split(phases: OnePhase | TwoPhases, steps: int, sampling: Sampling, batch: Batch) -> tuple[Phase, ...]:
    """Return the phases of `steps` steps, in order. Raises ConfigError if one would have no step."""
    if isinstance(phases, OnePhase):
        return (Phase(first=0, end=steps, sampling=sampling, batch=batch),)
    second = round(phases.share * steps)
    require(
        0 < second < steps,
        f"phases.share ({phases.share}) of steps ({steps}) is {second}, and each phase needs a step: ask for more "
        "steps, or for phases:one-phase",
    )
    longer = Batch(rows_per_step=phases.rows_per_step, rows_per_slot=phases.rows_per_slot)
    return (
        Phase(first=0, end=steps - second, sampling=sampling, batch=batch),
        Phase(
            first=steps - second,
            end=steps,
            sampling=replace(sampling, maximum_length=phases.maximum_length),
            batch=longer,
        ),
    )
