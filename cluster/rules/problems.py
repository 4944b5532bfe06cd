"""A problem of a file, and the walk over a document that finds some."""

from collections.abc import Iterator
from typing import Any

Problem = tuple[str, str]
"""The dotted field, and what it has and what would be right."""
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
    """Yield the address ranges that let the world in."""
    for field, value in fields(document):
        if value in EVERYWHERE:
            yield field, f"{value} opens the nodes to the world; name your own address, as 203.0.113.7/32"
