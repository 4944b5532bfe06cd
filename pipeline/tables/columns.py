"""Columns of a table: check their names, and name rows that cannot be used."""

from collections import Counter
from collections.abc import Sequence

from pipeline.errors import DataError, listed, shown


class BrokenLine(ValueError):
    """A line that is not a valid row; the message says why in a few words."""


class NotScored(BrokenLine):
    """A row that the data set itself leaves out of its scores; it is skipped in every split, and counted."""


class MissingColumn(DataError):
    """A table lacks a column."""

    def __init__(self, table: str, column: str, names: Sequence[str], remedy: str = "") -> None:
        """Name the table, the column, the table's columns `names`, and after a semicolon a remedy."""
        end = f"; {remedy}" if remedy else ""
        super().__init__(f"{table} has no column {column}: its columns are {listed(names)}{end}")


def require_columns(location: str, names: Sequence[str], wanted: Sequence[str], remedy: str = "") -> None:
    """Raise DataError unless a file's columns, `names`, include each of `wanted` once.

    `remedy` ends the message about a missing column.
    """
    if missing := [name for name in wanted if name not in names]:
        raise MissingColumn(location, missing[0], names, remedy)
    require_once(location, [name for name in names if name in wanted])


def require_once(location: str, names: Sequence[str]) -> None:
    """Raise DataError for a duplicated name."""
    if doubled := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(f"{location}: column {shown(doubled[0])} occurs twice; give each column its own name")
