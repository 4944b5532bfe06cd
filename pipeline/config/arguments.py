"""The words of a command line in the order that the parser wants: kinds such as `optimizer:lamb` last, each before its own options."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_type_hints

HELP = ("-h", "--help")


def in_order(arguments: Sequence[str], settings: type, default: Any = None) -> list[str]:
    """The arguments of a settings class, of which every option has one value, in any order; where an option of a kind stands without it, the kind is that of `default`, or the class's own."""
    if set(HELP) & set(arguments):
        return list(arguments)
    kinds = {path: [] for path in choices(settings)}
    words: dict[str, list[str]] = {}
    first: list[str] = []
    for word, values in options(arguments):
        path, _, kind = word.replace("_", "-").partition(":")
        if kind and path in kinds and not word.startswith("--"):
            words.setdefault(path, []).append(word)
            continue
        owner = next((path for path in kinds if word.replace("_", "-").startswith(f"--{path}.")), None)
        (first if owner is None else kinds[owner]).extend((word, *values))
    for path, own in kinds.items():
        named = words.get(path) or ([f"{path}:{default_kind(settings, default, path)}"] if own else [])
        first += [*named, *own]
    return first


def options(arguments: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each option with the value that follows it; other words alone."""
    place = 0
    while place < len(arguments):
        word, place = arguments[place], place + 1
        if word.startswith("--") and "=" not in word and place < len(arguments):
            yield word, (arguments[place],)
            place += 1
        else:
            yield word, ()


def choices(settings: type, prefix: str = "") -> Iterator[str]:
    """The dotted names, as options write them, of settings that are one of several kinds."""
    for name, hint in get_type_hints(settings).items():
        path, kinds = prefix + name.replace("_", "-"), [option for option in (hint, *get_args(hint)) if dataclasses.is_dataclass(option)]
        if len(kinds) > 1:
            yield path
        elif kinds:
            yield from choices(kinds[0], f"{path}.")


def default_kind(settings: type, default: Any, path: str) -> str:
    """The kind of a setting where none is named, as options write it."""
    value = default
    for name in path.replace("-", "_").split("."):
        if value is None:
            value = next(field.default for field in dataclasses.fields(settings) if field.name == name)
        else:
            value = getattr(value, name)
    return flag_of(type(value))


def flag_of(kind: type) -> str:
    """A kind's name as options write it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()
