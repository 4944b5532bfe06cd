"""Renderers that choose or join a Wikipedia template's arguments, and the marks that renderers leave in text."""

from collections.abc import Callable, Mapping

Arguments = Mapping[str, str]
"""A template's arguments by name; the names of unnamed arguments are "1", "2", …"""
Render = Callable[[Arguments], str]
HOLE = "\ue000"
"""Placeholder for text that cannot be written: a number that only MediaWiki can compute, a formula of several lines.

If the placeholder is in parentheses, the parentheses and their content are removed later. Otherwise the whole
sentence with the placeholder is removed.
"""
ASIDE, ASIDE_END = "\ue001", "\ue002"
"""Marks around an aside: a pronunciation or coordinates.

An aside after a bold name is removed later. An aside in parentheses is removed too, unless it follows words in
lower case, such as "pronounced". All other asides lose only their marks.
"""
GLUED = "\u2064"
"""Mark before a fraction. After a number, as in 1{{frac|1|2}}, the mark becomes a space; elsewhere it is removed."""


def first(*names: str) -> Render:
    """Return a renderer that gives the first of these arguments that is not blank, or "" if all are blank."""
    return lambda arguments: next((text for name in names if (text := arguments.get(name, "").strip())), "")


def constant(text: str) -> Render:
    return lambda arguments: text


def prefixed(before: str) -> Render:
    """Return a renderer of `before` and the first argument, if there is one: {{€|5}} -> €5, {{floruit}} -> fl."""
    return lambda arguments: f"{before}{first('1')(arguments)}".strip()


def around(before: str, after: str) -> Render:
    """Return a renderer that puts the first argument between two signs, or gives "" if the argument is blank."""
    return lambda arguments: f"{before}{text}{after}" if (text := first("1")(arguments)) else ""


def joined(separator: str) -> Render:
    """Return a renderer that joins all unnamed arguments that are not blank."""
    return lambda arguments: separator.join(text for text in unnamed(arguments) if text)


def unnamed(arguments: Arguments) -> list[str]:
    """Return the unnamed arguments in order."""
    return [text.strip() for name, text in arguments.items() if name.isdecimal()]


def last(arguments: Arguments) -> str:
    """Render the last unnamed argument that is not blank: {{transl|ar|DIN|text}}, {{resize|80%|text}}."""
    return next((text for text in reversed(unnamed(arguments)) if text), "")
