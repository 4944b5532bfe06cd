"""Base of the kinds of phases, a phase after the first, and the names of the settings of a phase."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pipeline.command_line.options import flag
from pipeline.config.data import Sampling


@dataclass(frozen=True, kw_only=True)
class PhaseNames:
    """Names of the settings that a phase's numbers come from, for messages."""

    maximum_length: str = "sampling.maximum_length"
    rows_per_step: str = "batch.rows_per_step"
    rows_per_slot: str = "batch.rows_per_slot"
    theta: str = "phases.theta"
    listed: int | None = None
    """Number of the phase, from 1, if phases.rows_per_slot is a list with a value for each phase; else None."""

    @property
    def own_slots(self) -> bool:
        """Whether the phase has rows per slot of its own, instead of those of `batch`."""
        return self.rows_per_slot.startswith("phases.")

    def slots_option(self, rows: int) -> str:
        """Return the option that sets the rows per slot of the phase."""
        option = flag(self.rows_per_slot)
        return f"{option} {rows}" if self.listed is None else f"{option} with {rows} for phase {self.listed}"


@dataclass(frozen=True, kw_only=True)
class LaterPhase:
    """A phase after the first. A value that is None is that of the first phase."""

    maximum_length: int | None = None
    rows_per_step: int | None = None
    rows_per_slot: int | Literal["auto"] = "auto"
    """Used if the phase has rows per slot of its own."""
    masking_share: float | None = None
    theta: float | None = None
    usual_rows: int | None = None
    """Maximum rows of a slot for `auto` on a CPU; None: those with the tokens of USUAL_ROWS rows of the first phase."""
    names: PhaseNames = PhaseNames()


@dataclass(frozen=True, kw_only=True)
class PhaseKind:
    """A kind of phases. The methods are those of a single phase; kinds with more phases replace them."""

    remedy = "leave it out"
    """Remedy for `masks` that have no effect."""

    @property
    def masks(self) -> str | None:
        """Setting, with its value, that gives later phases another share of masked tokens; None if there is none."""
        return None

    def later(self, sampling: Sampling) -> tuple[LaterPhase, ...]:
        """Return the phases after the first; `sampling` is that of the first phase."""
        return ()

    def borders(self, steps: int, phases: int) -> list[int]:
        """Return the first step of each phase after the first; there are `phases`, the first included.

        Raises ConfigError if a phase would have no step.
        """
        return []

    def with_slots(self, rows: Sequence[int]) -> Self:
        """Return the settings with these rows per slot, in the later phases that have rows per slot of their own."""
        return self
