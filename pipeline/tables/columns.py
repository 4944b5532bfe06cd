"""Columns of a table's rows: split lines at tabs, check the names of columns, and name rows that cannot be used."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pipeline.errors import DataError, listed, shown
from pipeline.tables.content import decoded, is_blank


class BrokenLine(ValueError):
    """A line that is not a valid row; the message says why in a few words."""


class NotScored(BrokenLine):
    """A row that the data set itself leaves out of its scores; it is skipped in every split, and counted."""


def tab_separated(location: str, content: bytes) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield (line number from 1, fields) of each non-blank line. Raises DataError for invalid UTF-8."""
    for line, text in enumerate(decoded(location, content).split("\n"), 1):
        if not is_blank(text := text.removesuffix("\r")):
            yield line, text.split("\t")


def require_columns(location: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise DataError unless a file's columns, `names`, include each of `wanted` once."""
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(f"{location} has no column {missing[0]}: its columns are {listed(names)}")
    require_once(location, [name for name in names if name in wanted])


def require_once(location: str, names: Sequence[str]) -> None:
    """Raise DataError for a duplicated name."""
    if doubled := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError(f"{location}: column {shown(doubled[0])} occurs twice; give each column its own name")
