"""Phases of a run: consecutive steps with one maximum sequence length, batch size and share of masked tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Literal, Self

from pipeline.config.checks import require, require_above_zero, require_at_least, require_share
from pipeline.config.data import Sampling
from pipeline.config.model import Model
from pipeline.config.model_parts import LocalAttention, RotaryPositions
from pipeline.config.phase_kind import LaterPhase, PhaseKind, PhaseNames
from pipeline.config.training import USUAL_ROWS, Batch, largest_divisor, require_divisible

USUAL_LONGER_ROWS = 8
"""Rows of a slot for phases.rows_per_slot auto of two phases on a CPU."""
MMBERT_DIVISORS = (2, 6)
"""Default of phases.masking_shares: sampling.masking.share divided by these. From 30%, mmBERT falls to 15% and 5%."""


@dataclass(frozen=True, kw_only=True)
class OnePhase(PhaseKind):
    """All steps have the batch size of `batch` and sequences of at most sampling.maximum_length tokens."""


@dataclass(frozen=True, kw_only=True)
class TwoPhases(PhaseKind):
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

    @property
    def masks(self) -> str | None:
        """Return phases.masking_share, if it is set."""
        return None if self.masking_share is None else f"phases.masking_share ({self.masking_share})"

    def later(self, sampling: Sampling) -> tuple[LaterPhase, ...]:
        """Return the second phase."""
        second = LaterPhase(
            maximum_length=self.maximum_length,
            rows_per_step=self.rows_per_step,
            rows_per_slot=self.rows_per_slot,
            masking_share=self.masking_share,
            theta=self.theta,
            usual_rows=USUAL_LONGER_ROWS,
            names=PhaseNames(
                maximum_length="phases.maximum_length",
                rows_per_step="phases.rows_per_step",
                rows_per_slot="phases.rows_per_slot",
            ),
        )
        return (second,)

    def borders(self, steps: int, phases: int) -> list[int]:
        """Return the first step of the second phase."""
        second = round(self.share * steps)
        require(
            0 < second < steps,
            f"phases.share ({self.share}) of steps ({steps}) gives the second phase {second} of the steps, but each "
            "phase needs at least one: set more steps, or choose phases:one-phase",
        )
        return [steps - second]

    def with_slots(self, rows: Sequence[int]) -> Self:
        """Return the settings with these rows per slot in the second phase."""
        return replace(self, rows_per_slot=rows[0])


@dataclass(frozen=True, kw_only=True)
class SeveralPhases(PhaseKind):
    """Each phase has its own length, rows, share of masked tokens or rotary angles, and starts with a new window.

    The first phase has the settings of `sampling` and `batch`. A list has one value for each phase after the first; a
    list that is left out means as in the first phase. `two-phases` and `falling-masks` are short forms.
    """

    parts: tuple[float, ...] = ()
    """Share of the steps that each phase takes, the first included. Default: equal shares."""
    maximum_lengths: tuple[int, ...] = ()
    """Maximum tokens per sequence in each phase after the first. Default: sampling.maximum_length."""
    rows_per_step: tuple[int, ...] = ()
    """Rows per optimiser update in each phase after the first. Default: batch.rows_per_step."""
    rows_per_slot: tuple[int, ...] = ()
    """Rows per slot in each phase after the first. Default: as batch.rows_per_slot auto, with fewer rows if they are
    longer; batch.rows_per_slot if lengths and rows do not change.
    """
    masking_shares: tuple[float, ...] = ()
    """Share of a sequence's tokens to mask in each phase after the first. Default: sampling.masking.share."""
    thetas: tuple[float, ...] = ()
    """Base of the rotary angles in each phase after the first, in layers with global attention. Default:
    model.positions.theta.
    """

    def __post_init__(self) -> None:
        if self.parts:
            require(len(self.parts) > 1, f"phases.parts ({_listed(self.parts)}) must have a value for each phase")
            _require_parts(self.parts)
        lists = {name: getattr(self, name) for name in LISTS if getattr(self, name)}
        if lists:
            longest, values = next(iter(lists.items()))
            name, count = ("parts", len(self.parts)) if self.parts else (longest, len(values) + 1)
            like = f"phases.{name} ({_listed(getattr(self, name))}) gives {count} phases"
            for name, values in lists.items():
                require(
                    len(values) == count - 1,
                    f"phases.{name} ({_listed(values)}) must have {count - 1} value{'s' * (count > 2)}, one for each "
                    f"phase after the first, because {like}",
                )
        self._check_values()

    def _check_values(self) -> None:
        """Raise ConfigError for values that no run can have."""
        for name, least in (("maximum_lengths", 8), ("rows_per_step", 1), ("rows_per_slot", 1)):
            for value in getattr(self, name):
                require_at_least(f"phases.{name}", value, least)
        for rows, slot in zip(self.rows_per_step, self.rows_per_slot):
            require(
                rows % slot == 0, f"phases.rows_per_step ({rows}) must be a multiple of phases.rows_per_slot ({slot})"
            )
        for rows in self.rows_per_step if not self.rows_per_slot else ():
            require_divisible("phases.rows_per_step", rows, largest_divisor(USUAL_ROWS, rows))
        for share in self.masking_shares:
            require_share("phases.masking_shares", share)
        for theta in self.thetas:
            require_above_zero("phases.thetas", theta)

    @property
    def masks(self) -> str | None:
        """Return phases.masking_shares, if they are set."""
        return f"phases.masking_shares ({_listed(self.masking_shares)})" if self.masking_shares else None

    def later(self, sampling: Sampling) -> tuple[LaterPhase, ...]:
        """Return a phase for each value of the lists. Raises ConfigError if no list is set."""
        names = [f"phases.{name}" for name in LISTS]
        require(
            any(getattr(self, name) for name in LISTS),
            f"phases (several-phases) needs what changes: set {', '.join(names[:-1])} or {names[-1]}",
        )
        lists = {single: getattr(self, name) for name, single in LISTS.items() if getattr(self, name)}
        named = PhaseNames(theta="phases.thetas")
        if self._own_slots:
            named = replace(named, rows_per_slot="phases.rows_per_slot")
            named = replace(named, rows_per_step="phases.rows_per_step") if self.rows_per_step else named
            named = replace(named, maximum_length="phases.maximum_lengths") if self.maximum_lengths else named
        columns = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
        return tuple(
            LaterPhase(**values, names=replace(named, listed=number if self._own_slots else None))
            for number, values in enumerate(columns, 2)
        )

    def borders(self, steps: int, phases: int) -> list[int]:
        """Return the steps at which `parts` of the steps are over."""
        return _borders(self.parts, steps, phases)

    def with_slots(self, rows: Sequence[int]) -> Self:
        """Return the settings with these rows per slot after the first phase, unless only masks or angles change."""
        return replace(self, rows_per_slot=tuple(rows)) if self._own_slots else self

    @property
    def _own_slots(self) -> bool:
        return bool(self.maximum_lengths or self.rows_per_step or self.rows_per_slot)


LISTS = {
    "maximum_lengths": "maximum_length",
    "rows_per_step": "rows_per_step",
    "rows_per_slot": "rows_per_slot",
    "masking_shares": "masking_share",
    "thetas": "theta",
}
"""List of SeveralPhases -> the value of a phase, in LaterPhase."""


@dataclass(frozen=True, kw_only=True)
class FallingMasks(PhaseKind):
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
    remedy = "choose phases:one-phase"

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
            _require_parts(self.parts)

    def later_shares(self, first: float) -> tuple[float, ...]:
        """Return the shares of masked tokens in the phases after the first, whose share is `first`."""
        return self.masking_shares or tuple(round(first / divisor, 4) for divisor in MMBERT_DIVISORS)

    @property
    def masks(self) -> str | None:
        """Return the kind, which changes nothing else."""
        return "phases (falling-masks)"

    def later(self, sampling: Sampling) -> tuple[LaterPhase, ...]:
        """Return the phases with lower shares. Raises ConfigError if the shares do not fall."""
        first = sampling.masking.share
        shares = self.later_shares(first)
        require(
            all(after < before for before, after in pairwise((first, *shares))),
            f"phases.masking_shares ({_listed(shares)}) must fall, from sampling.masking.share "
            f"({first:g}) on: raise sampling.masking.share, or lower the shares",
        )
        return SeveralPhases(masking_shares=shares).later(sampling)

    def borders(self, steps: int, phases: int) -> list[int]:
        """Return the steps at which `parts` of the steps are over."""
        return _borders(self.parts, steps, phases)


Phases = OnePhase | TwoPhases | FallingMasks | SeveralPhases


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps `first` to `end` - 1 of a run, with one sequence length."""

    first: int
    end: int
    sampling: Sampling
    batch: Batch
    theta: float | None = None
    """Base of the rotary angles in layers with global attention; None: that of the model's settings."""
    names: PhaseNames = field(default=PhaseNames(), compare=False)
    automatic: bool = False
    """Whether the rows per slot are chosen for the device, and `batch` has those of a CPU."""

    @property
    def fewest_rows_name(self) -> str:
        """Name of the setting with the rows of the phase's smallest step."""
        return "batch.warmup_rows" if self.batch.warmup_rows else self.names.rows_per_step

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
    first = batch.with_slots(USUAL_ROWS, workers)
    later = phases.later(sampling)
    borders = (0, *phases.borders(steps, len(later) + 1), steps)
    found = [
        Phase(first=0, end=borders[1], sampling=sampling, batch=first, automatic=batch.rows_per_slot == "auto"),
    ]
    for phase, (start, end) in zip(later, pairwise(borders[1:]), strict=True):
        share = sampling.masking.share if phase.masking_share is None else phase.masking_share
        length = phase.maximum_length or sampling.maximum_length
        found.append(
            Phase(
                first=start,
                end=end,
                sampling=replace(sampling, maximum_length=length, masking=replace(sampling.masking, share=share)),
                batch=_later_batch(phase, first, sampling.maximum_length, length, workers),
                theta=phase.theta,
                names=phase.names,
                automatic=phase.names.own_slots and phase.rows_per_slot == "auto",
            )
        )
    return tuple(found)


def _later_batch(phase: LaterPhase, first: Batch, first_length: int, length: int, workers: int) -> Batch:
    """Return the batch of a phase after the first, which has the batch `first`; it does not warm up."""
    rows = phase.rows_per_step or first.rows_per_step
    if not phase.names.own_slots:
        return Batch(rows_per_step=rows, rows_per_slot=first.rows_per_slot)
    if phase.rows_per_slot != "auto":
        require(
            rows % phase.rows_per_slot == 0,
            f"{phase.names.rows_per_step} ({rows}) must be a multiple of {phase.names.rows_per_slot} "
            f"({phase.rows_per_slot})",
        )
    usual = phase.usual_rows or max(1, min(USUAL_ROWS, USUAL_ROWS * first_length // length))
    return Batch(rows_per_step=rows, rows_per_slot=phase.rows_per_slot).with_slots(usual, workers)


def share_of_masks(phase: Phase, phases: tuple[Phase, ...]) -> str:
    """Return the phase's share of masked tokens as text, such as ", 30% masked"; "" if all `phases` have one share."""
    differ = len({each.sampling.masking.share for each in phases}) > 1
    return f", {phase.sampling.masking.share:.0%} masked" if differ else ""


def _listed(values: tuple[float, ...]) -> str:
    """Return numbers as text, divided by commas."""
    return ", ".join(f"{value:g}" for value in values)


def _borders(parts: tuple[float, ...], steps: int, phases: int) -> list[int]:
    """Return the steps, without 0 and the last, at which these shares of the steps are over; () is equal shares."""
    parts = parts or (1 / phases,) * phases
    borders = [round(part * steps) for part in accumulate(parts[:-1])]
    require(
        all(first < end for first, end in pairwise((0, *borders, steps))),
        f"phases.parts ({_listed(parts)}) of steps ({steps}) leaves a phase without steps: set more steps, or choose "
        "phases:one-phase",
    )
    return borders


def _require_parts(parts: tuple[float, ...]) -> None:
    """Raise ConfigError unless the shares of the steps are above 0 and add up to 1."""
    require(
        min(parts) > 0 and abs(sum(parts) - 1) < 1e-6,
        f"phases.parts ({_listed(parts)}) must be above 0 and add up to 1, but they add up to {sum(parts):g}",
    )
