"""Arguments of Wikipedia's templates: renderers that only choose or join them, and the marks left in the text."""

from collections.abc import Callable, Mapping

Arguments = Mapping[str, str]
"""A template's arguments by name; unnamed ones are "1", "2", …"""
Render = Callable[[Arguments], str]
HOLE = "\ue000"
"""Placeholder for what cannot be written: a number that only MediaWiki can compute, a formula of several lines.

The parentheses or the sentence around it are removed.
"""
ASIDE, ASIDE_END = "\ue001", "\ue002"
"""Marks around a pronunciation or coordinates: removed in parentheses and after a bold name, kept elsewhere."""
GLUED = "\u2064"
"""Mark between a number and its fraction, 1{{frac|1|2}}: becomes a space there, else nothing."""


def first(*names: str) -> Render:
    """Return a renderer of the first of these arguments that is not blank."""
    return lambda arguments: next((text for name in names if (text := arguments.get(name, "").strip())), "")


def constant(text: str) -> Render:
    return lambda arguments: text


def prefixed(before: str) -> Render:
    """Return a renderer of the first argument, or nothing, after a sign: {{€|5}}, {{floruit}} 1900."""
    return lambda arguments: f"{before}{first('1')(arguments)}".strip()


def around(before: str, after: str) -> Render:
    """Return a renderer of the first argument between two signs; empty if the argument is blank."""
    return lambda arguments: f"{before}{text}{after}" if (text := first("1")(arguments)) else ""


def joined(separator: str) -> Render:
    """Return a renderer that joins all unnamed arguments."""
    return lambda arguments: separator.join(text for text in unnamed(arguments) if text)


def unnamed(arguments: Arguments) -> list[str]:
    """Return the unnamed arguments in order."""
    return [text.strip() for name, text in arguments.items() if name.isdecimal()]


def last(arguments: Arguments) -> str:
    """Render the last unnamed argument: {{transl|ar|DIN|text}}, {{resize|80%|text}}."""
    return next((text for text in reversed(unnamed(arguments)) if text), "")
