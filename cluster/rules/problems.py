"""The problem type, and functions that walk over a document."""

from collections.abc import Iterator
from typing import Any

Problem = tuple[str, str]
"""A problem: the dotted field, and its value with what would be right."""
EVERYWHERE = ("0.0.0.0/0", "::/0")


def fields(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf of a document with its dotted name."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield name, value
        return
    for key, inner in items:
        yield from fields(inner, f"{name}.{key}" if name else str(key))


def open_ranges(document: dict) -> Iterator[Problem]:
    """Yield address ranges that are open to the world."""
    for field, value in fields(document):
        if value in EVERYWHERE:
            yield field, f"{value} opens the nodes to the world; name your own address, as 203.0.113.7/32"
