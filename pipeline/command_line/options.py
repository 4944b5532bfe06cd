"""List the settings of a class as options, with names, types and descriptions. Suggest names for misspelt ones."""

import ast
import dataclasses
import difflib
import functools
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pipeline.errors import listed

NAMES: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
"""Readable names of value types."""
MOST_NEAR = 3
"""Maximum number of suggestions for a misspelt name."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One setting, as an option of the command line."""

    path: str
    """Dotted name."""
    hint: Any
    """Type hint of its values."""
    default: Any
    """Default value; dataclasses.MISSING if the option is required."""
    text: str
    """Description."""
    choice: str = ""
    """If the option belongs to a kind: dotted name of the setting that has this kind, such as "optimizer"; else empty.
    """
    kind: str = ""
    """If the option belongs to a kind: the kind, as written on the command line, such as "lamb"; else empty."""

    @property
    def flag(self) -> str:
        return flag(self.path)

    @property
    def off(self) -> str:
        """Flag that sets a boolean option to False."""
        group, _, name = self.path.rpartition(".")
        return flag(f"{group}.no_{name}" if group else f"no_{name}")

    @property
    def boolean(self) -> bool:
        return bool in types_of(self.hint)

    @property
    def switch(self) -> bool:
        return is_switch(self.hint)

    @property
    def many(self) -> bool:
        return get_origin(self.hint) is tuple

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def metavar(self) -> str:
        """Placeholder of the option's value in the help; empty for a boolean option."""
        options = (
            [element_of(self.hint)]
            if self.many
            else [option for option in types_of(self.hint) if option is not NoneType]
        )
        names = {str: "TEXT", int: "INT", float: "FLOAT", bool: ""}
        return "|".join(dict.fromkeys("|".join(map(str, get_args(option))) or names[option] for option in options))


def options_of(
    settings: Any, default: Any = None, prefix: str = "", choice: str = "", kind: str = ""
) -> Iterator[Option]:
    """Yield every option of a settings class, including the options of all kinds.

    The default of an option is the option's value in `default`. If `default` is None or of another kind, the default
    comes from the class.
    """
    hints, texts = get_type_hints(settings), field_texts(settings)
    for field in dataclasses.fields(settings):
        path, kinds = prefix + field.name, kinds_of(hints[field.name])
        value = field.default if default is None else getattr(default, field.name)
        for each in kinds:
            own = value if type(value) is each else None
            parent = (path, flag_of(each)) if len(kinds) > 1 else (choice, kind)
            yield from options_of(each, own, f"{path}.", *parent)
        if not kinds:
            text = texts.get(field.name, "")
            yield Option(path=path, hint=hints[field.name], default=value, text=text, choice=choice, kind=kind)


def choices(settings: type, prefix: str = "") -> dict[str, dict[str, type]]:
    """Return dotted name -> {name of the kind on the command line: class} for every setting with several kinds."""
    choices_by_path: dict[str, dict[str, type]] = {}
    for name, hint in get_type_hints(settings).items():
        kinds = kinds_of(hint)
        if len(kinds) > 1:
            choices_by_path[prefix + name] = {flag_of(kind): kind for kind in kinds}
        elif kinds:
            choices_by_path |= choices(kinds[0], f"{prefix}{name}.")
    return choices_by_path


def default_kind(settings: Any, default: Any, path: str) -> str:
    """Return the kind that a setting has in `default`, or in the class if `default` is None.

    The kind is written as on the command line.
    """
    value: Any = default
    owner: Any = settings
    for name in path.split("."):
        hints = get_type_hints(owner)
        if value is None:
            value = next(field.default for field in dataclasses.fields(owner) if field.name == name)
        else:
            value = getattr(value, name)
        value = None if value is dataclasses.MISSING else value
        owner = kinds_of(hints[name])[0]
    return flag_of(type(value))


def is_switch(hint: Any) -> bool:
    """Return whether the values include on and off. Then the bare flag means on, and true and false are read too."""
    return {"on", "off"} <= set(get_args(hint))


def kinds_of(hint: Any) -> list[Any]:
    """Return the settings classes that a value may have; empty for a plain value."""
    return [option for option in (hint, *get_args(hint)) if dataclasses.is_dataclass(option)]


def types_of(hint: Any) -> tuple[Any, ...]:
    """Return the types that a value may have: (str, NoneType) for `str | None`; a Literal or tuple type is one type."""
    return (hint,) if get_origin(hint) in (Literal, tuple, None) else get_args(hint)


def element_of(hint: Any) -> type:
    """Return the type of the values in a tuple type: float for tuple[float, ...]."""
    return get_args(hint)[0]


def wanted(hint: Any, value: object) -> str:
    """Return a description of the valid values, for the message about an invalid `value`."""
    options = [option for option in types_of(hint) if option is not NoneType]
    choices = [str(choice) for option in options if get_origin(option) is Literal for choice in get_args(option)]
    if choices:
        return f"one of {listed(choices)}{did_you_mean(nearest(str(value), choices))}"
    if get_origin(hint) is tuple:
        return f"a list of {NAMES[element_of(hint)].removeprefix('a ')}s"
    return " or ".join(NAMES[option] for option in options)


def flag_of(kind: type) -> str:
    """Return a kind's name as written on the command line."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def flag(path: str) -> str:
    """Return a dotted name as an option."""
    return f"--{path.replace('_', '-')}"


def field_texts(settings: type) -> dict[str, str]:
    """Return field -> the field's docstring in the source, including the fields of base classes."""
    texts: dict[str, str] = {}
    for base in reversed(settings.__mro__):
        source = getattr(sys.modules.get(base.__module__), "__file__", None)  # None if the module is not imported
        if dataclasses.is_dataclass(base) and source:
            texts |= _texts_in(source).get(base.__name__, {})
    return texts


@functools.cache
def _texts_in(source: str) -> dict[str, dict[str, str]]:
    """Return class -> field -> the field's docstring, from a Python file."""
    texts: dict[str, dict[str, str]] = {}
    for node in ast.parse(Path(source).read_text("utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        own = texts.setdefault(node.name, {})
        for field, below in zip(node.body, node.body[1:]):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                own[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return texts


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return at most three of the known dotted names that a misspelt name may mean.

    The first of these groups that is not empty:

    - the names with the same last part as `word`
    - the names with the last part of `word` as the initials of their last part (lr for learning_rate)
    - the most similar name
    """
    names = list(dict.fromkeys(known))  # kinds may have options of the same name
    last = word.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last]
    same = same or [name for name in names if _initials(name) == last]
    if same:
        return sorted(same, key=lambda name: -difflib.SequenceMatcher(None, word, name).ratio())[:MOST_NEAR]
    return difflib.get_close_matches(word, names, n=1)


def _initials(name: str) -> str:
    """Return the initials of the words in a dotted name's last part."""
    return "".join(part[:1] for part in re.split("[-_]", name.rpartition(".")[2]))


def nearest_or_all(word: str, known: Iterable[str], more: str = "") -> str:
    """Return the end of a message for an unknown name: the nearest known name, or all of them and then `more`."""
    names = list(known)
    return did_you_mean(nearest(word, names)) or f": choose from {', '.join(names)}{more}"


def did_you_mean(names: Iterable[str]) -> str:
    """Return "; did you mean NAME?" for the end of a message; empty without names."""
    text = " or ".join(names)
    return f"; did you mean {text}?" if text else ""
