"""Align tables for a terminal."""

from collections.abc import Iterable, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDEST = 10_000
"""Console width in characters. It is larger than any line, because rich wraps lines that are longer than the width."""


def aligned(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table's lines, without wrapping: the first column is left-aligned, the others are right-aligned."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for number, head in enumerate(heads):
        table.add_column(Text(head), justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    lines = StringIO()
    console = Console(file=lines, width=WIDEST, color_system=None)
    console.print(table)
    return [line.rstrip() for line in lines.getvalue().splitlines()]
