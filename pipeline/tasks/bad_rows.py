"""Rows of a labelled file that cannot be used: the first one is an error, or all are left out, counted by reason."""

from collections import Counter
from dataclasses import dataclass, field

from pipeline.errors import BadRow, DataError


@dataclass(kw_only=True)
class BadRows:
    """What is done with the bad rows of one file."""

    skip: bool = False
    """Whether they are left out; else the first is raised."""
    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """Reason -> the message of its first row."""

    def take(self, error: BadRow) -> None:
        """Count a row that cannot be used. Raises its error where none is left out."""
        if not self.skip:
            raise error
        self.reasons[error.reason] += 1
        self.first.setdefault(error.reason, str(error))

    def words(self) -> tuple[str, ...]:
        """Return how many rows were left out, by reason, each with its first."""
        return tuple(
            f"{times:,} rows left out ({reason}, the first: {self.first[reason]})"
            for reason, times in self.reasons.most_common()
        )

    def require_some(self, location: str, kept: int) -> None:
        """Raise DataError where rows were left out and none is kept."""
        if self.reasons and not kept:
            raise DataError(f"{location} has no row that can be used: {'; '.join(self.words())}")
