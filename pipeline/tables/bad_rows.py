"""Unusable rows of a labelled file: raise an error at the first one, or skip all and count them by reason."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from pipeline.errors import BadRow, DataError

T = TypeVar("T")
OPTION = "; --on-bad-rows skip leaves such rows out"
"""Remedy of commands that have the setting on_bad_rows."""


@dataclass(kw_only=True)
class BadRows:
    """Policy for the bad rows of one file, with counts by reason."""

    skip: bool = False
    """True: skip and count bad rows. False: raise the error of the first bad row."""
    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """Reason -> error message of the first row that has it."""
    notes: list[str] = field(default_factory=list)
    """Lines on how the file was read."""
    remedy: str = ""
    """End of an error's message; OPTION if the command has this option."""

    def take(self, error: BadRow) -> None:
        """Count a bad row if bad rows are skipped, else raise its error."""
        if not self.skip:
            raise BadRow(f"{error}{self.remedy}", error.reason) if self.remedy else error
        self.reasons[error.reason] += 1
        self.first.setdefault(error.reason, str(error))

    def usable(self, rows: Iterable[tuple[int, T | BadRow]]) -> Iterator[tuple[int, T]]:
        """Yield the numbered rows that can be used, and take the others."""
        for number, row in rows:
            if isinstance(row, BadRow):
                self.take(row)
            else:
                yield number, row

    def words(self) -> tuple[str, ...]:
        """Return the notes, and one line per reason: the number of rows left out, and the first error message."""
        return (*self.notes, *self._left_out())

    def _left_out(self) -> tuple[str, ...]:
        """Return one line per reason."""
        return tuple(
            f"{times:,} rows left out ({reason}, the first: {self.first[reason]})"
            for reason, times in self.reasons.most_common()
        )

    def require_some(self, location: str, kept: int) -> None:
        """Raise DataError if rows were left out and the number of rows `kept` is 0."""
        if self.reasons and not kept:
            raise DataError(f"{location} has no row that can be used: {'; '.join(self._left_out())}")
