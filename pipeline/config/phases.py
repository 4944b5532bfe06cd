"""Phases of a run: consecutive steps with one maximum sequence length, batch size and share of masked tokens."""

from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal

from pipeline.config.checks import require, require_above_zero, require_at_least, require_share
from pipeline.config.data import Sampling
from pipeline.config.model import Model
from pipeline.config.model_parts import LocalAttention, RotaryPositions
from pipeline.config.training import USUAL_ROWS, Batch, largest_divisor, require_divisible

USUAL_LONGER_ROWS = 8
"""Rows of a slot for phases.rows_per_slot auto on a CPU."""
MMBERT_DIVISORS = (2, 6)
"""Default of phases.masking_shares: sampling.masking.share divided by these. From 30%, mmBERT falls to 15% and 5%."""


@dataclass(frozen=True, kw_only=True)
class OnePhase:
    """All steps have the batch size of `batch` and sequences of at most sampling.maximum_length tokens."""


@dataclass(frozen=True, kw_only=True)
class TwoPhases:
    """The last steps have longer sequences, another share of masked tokens, other rotary angles, or several of these.

    Devlin et al. 2019, appendix A.2, use length 128 for 90% of the steps, then 512. All examples of a window are made
    for one length, so the second phase starts with a new window.
    """

    share: float = 0.1
    """Share of the steps that the second phase takes."""
    maximum_length: int = 512
    """Maximum tokens per sequence in the second phase."""
    rows_per_step: int = 256
    """Rows per optimiser update in the second phase."""
    rows_per_slot: int | Literal["auto"] = "auto"
    """Rows per slot in the second phase. auto: on a GPU as batch.rows_per_slot auto, on a CPU at most 8. If sequences
    are four times as long, a quarter of the rows needs about the same memory.
    """
    masking_share: float | None = None
    """Share of a sequence's tokens to mask in the second phase; mmBERT (Marone et al. 2025) and GPT-BERT (Charpentier
    and Samuel 2024) lower the share during training. Default: sampling.masking.share.
    """

    theta: float | None = None
    """Base of the rotary angles in the second phase, in layers with global attention; ModernBERT raises it from 10,000
    to 160,000 for long sequences. Default: model.positions.theta.
    """

    def __post_init__(self) -> None:
        require(0 < self.share < 1, f"phases.share ({self.share}) must lie between 0 and 1")
        require_at_least("phases.maximum_length", self.maximum_length, 8)
        require_at_least("phases.rows_per_step", self.rows_per_step, 1)
        if self.rows_per_slot != "auto":
            require_at_least("phases.rows_per_slot", self.rows_per_slot, 1)
        require(
            self.rows_per_slot == "auto" or self.rows_per_step % self.rows_per_slot == 0,
            f"phases.rows_per_step ({self.rows_per_step}) must be a multiple of phases.rows_per_slot "
            f"({self.rows_per_slot})",
        )
        if self.rows_per_slot == "auto":
            rows = self.rows_per_step
            require_divisible("phases.rows_per_step", rows, largest_divisor(USUAL_ROWS, rows))
        if self.masking_share is not None:
            require_share("phases.masking_share", self.masking_share)
        if self.theta is not None:
            require_above_zero("phases.theta", self.theta)


@dataclass(frozen=True, kw_only=True)
class FallingMasks:
    """The share of masked tokens falls from phase to phase; length and batch stay the same.

    mmBERT (Marone et al. 2025) masks 30%, then 15%, then 5% of the tokens; GPT-BERT (Charpentier and Samuel 2024) lets
    the share fall from 30% to 15%. The first phase has sampling.masking.share. Each further phase starts with a new
    window.
    """

    masking_shares: tuple[float, ...] = ()
    """Share of a sequence's tokens to mask in each phase after the first. Default: a half, then a sixth of
    sampling.masking.share, as in mmBERT.
    """
    parts: tuple[float, ...] = ()
    """Share of the steps that each phase takes, the first included. Default: equal shares."""

    def __post_init__(self) -> None:
        for share in self.masking_shares:
            require_share("phases.masking_shares", share)
        if self.parts:
            phases, given = len(self.masking_shares or MMBERT_DIVISORS) + 1, _listed(self.parts)
            require(
                len(self.parts) == phases,
                f"phases.parts ({given}) must have a value for each of the {phases} phases: the first phase and one "
                f"for each of phases.masking_shares ({_listed(self.masking_shares) or 'a half, a sixth'})",
            )
            require(
                min(self.parts) > 0 and abs(sum(self.parts) - 1) < 1e-6,
                f"phases.parts ({given}) must be above 0 and add up to 1, but they add up to {sum(self.parts):g}",
            )

    def later_shares(self, first: float) -> tuple[float, ...]:
        """Return the shares of masked tokens in the phases after the first, whose share is `first`."""
        return self.masking_shares or tuple(round(first / divisor, 4) for divisor in MMBERT_DIVISORS)


Phases = OnePhase | TwoPhases | FallingMasks


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps `first` to `end` - 1 of a run, with one sequence length."""

    first: int
    end: int
    sampling: Sampling
    batch: Batch
    theta: float | None = None
    """Base of the rotary angles in layers with global attention; None: that of the model's settings."""

    def model(self, model: Model) -> Model:
        """Return the settings of the model in this phase; layers with local attention keep their angles."""
        positions = model.positions
        if self.theta is None or not isinstance(positions, RotaryPositions):
            return model
        local = positions.local_theta
        if local is None and isinstance(model.attention, LocalAttention):
            local = positions.theta
        return replace(model, positions=replace(positions, theta=self.theta, local_theta=local))


def split(phases: Phases, steps: int, sampling: Sampling, batch: Batch, workers: int = 1) -> tuple[Phase, ...]:
    """Return the phases of a run of `steps` steps, in order. Slots that are `auto` are those of a CPU.

    Raises ConfigError if a phase would have no step, or if the shares of FallingMasks do not fall.
    """
    batch = batch.with_slots(USUAL_ROWS, workers)
    if isinstance(phases, OnePhase):
        return (Phase(first=0, end=steps, sampling=sampling, batch=batch),)
    if isinstance(phases, FallingMasks):
        return _falling(phases, steps, sampling, batch)
    second = round(phases.share * steps)
    require(
        0 < second < steps,
        f"phases.share ({phases.share}) of steps ({steps}) gives the second phase {second} of the steps, but each "
        "phase needs at least one: set more steps, or choose phases:one-phase",
    )
    share = sampling.masking.share if phases.masking_share is None else phases.masking_share
    masking = replace(sampling.masking, share=share)
    longer = Batch(rows_per_step=phases.rows_per_step, rows_per_slot=phases.rows_per_slot)
    longer = longer.with_slots(USUAL_LONGER_ROWS, workers)
    return (
        Phase(first=0, end=steps - second, sampling=sampling, batch=batch),
        Phase(
            first=steps - second,
            end=steps,
            sampling=replace(sampling, maximum_length=phases.maximum_length, masking=masking),
            batch=longer,
            theta=phases.theta,
        ),
    )


def _falling(phases: FallingMasks, steps: int, sampling: Sampling, batch: Batch) -> tuple[Phase, ...]:
    """Return the phases of a run whose share of masked tokens falls; they begin where `parts` of the steps are over."""
    later = phases.later_shares(sampling.masking.share)
    shares = (sampling.masking.share, *later)
    require(
        all(after < before for before, after in pairwise(shares)),
        f"phases.masking_shares ({_listed(later)}) must fall, from sampling.masking.share "
        f"({sampling.masking.share:g}) on: raise sampling.masking.share, or lower the shares",
    )
    parts = phases.parts or (1 / len(shares),) * len(shares)
    borders = [0, *(round(part * steps) for part in accumulate(parts[:-1])), steps]
    require(
        all(first < end for first, end in pairwise(borders)),
        f"phases.parts ({_listed(parts)}) of steps ({steps}) leaves a phase without steps: set more steps, or choose "
        "phases:one-phase",
    )
    warm = Batch(rows_per_step=batch.rows_per_step, rows_per_slot=batch.rows_per_slot)
    return tuple(
        Phase(
            first=first,
            end=end,
            sampling=replace(sampling, masking=replace(sampling.masking, share=share)),
            batch=batch if first == 0 else warm,
        )
        for share, (first, end) in zip(shares, pairwise(borders), strict=True)
    )


def share_of_masks(phase: Phase, phases: tuple[Phase, ...]) -> str:
    """Return the phase's share of masked tokens as text, such as ", 30% masked"; "" if all `phases` have one share."""
    differ = len({each.sampling.masking.share for each in phases}) > 1
    return f", {phase.sampling.masking.share:.0%} masked" if differ else ""


def _listed(values: tuple[float, ...]) -> str:
    """Return numbers as text, divided by commas."""
    return ", ".join(f"{value:g}" for value in values)
