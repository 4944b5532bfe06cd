"""Align tables for a terminal.

Hand-written because a machine for `bench.py gpu` may have no rich.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from unicodedata import category, east_asian_width

GAP = "  "


def aligned(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table's lines: the first column is left-aligned, the others are right-aligned."""
    table = [heads, *rows]
    widths = [max(map(_width, column)) for column in zip_longest(*table, fillvalue="")]
    lines = []
    for cells in table:
        spaces = [" " * (width - _width(cell)) for cell, width in zip(cells, widths)]
        others = [space + cell for space, cell in zip(spaces[1:], cells[1:])]
        lines.append(GAP.join([cells[0] + spaces[0], *others]).rstrip())
    return lines


def _width(text: str) -> int:
    """Return the columns of a terminal that a text takes: two for a wide character, none for a mark on another one."""
    marks = ("Mn", "Me", "Cf")
    return sum(0 if category(sign) in marks else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)
