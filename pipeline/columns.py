"""Align tables for a terminal."""

from collections.abc import Sequence


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table's lines: the first column aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))])
        for row in (heads, *rows)
    ]
