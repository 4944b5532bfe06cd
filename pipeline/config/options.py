"""The settings of a class as options: dotted names, types, kinds, descriptions, and the names near a misspelt one."""

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

NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "a list of texts"}
"""Types of values, for people."""
MOST_NEAR = 3
"""Names that a message offers for a misspelt one."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One setting."""

    path: str
    """Dotted name."""
    hint: Any
    """Type of its values."""
    default: Any
    """Its value where none is given; dataclasses.MISSING where one must be."""
    text: str
    """What it is, for people."""
    choice: str = ""
    """Dotted name of the setting of several kinds that it belongs to, if any."""
    kind: str = ""
    """Kind of that setting, as options write it."""

    @property
    def flag(self) -> str:
        return flag(self.path)

    @property
    def off(self) -> str:
        """The flag that sets it to False."""
        group, _, name = self.path.rpartition(".")
        return flag(f"{group}.no_{name}" if group else f"no_{name}")

    @property
    def boolean(self) -> bool:
        return bool in types_of(self.hint)

    @property
    def many(self) -> bool:
        return get_origin(self.hint) is tuple

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def metavar(self) -> str:
        """The form of a value, as the help shows it."""
        options = [str] if self.many else [option for option in types_of(self.hint) if option is not NoneType]
        names = {str: "TEXT", int: "INT", float: "FLOAT", bool: ""}
        return "|".join(dict.fromkeys("|".join(map(str, get_args(option))) or names[option] for option in options))


def options_of(
    settings: type, default: Any = None, prefix: str = "", choice: str = "", kind: str = ""
) -> Iterator[Option]:
    """Yield every option of a settings class and of all kinds; defaults are those of `default` where it has them."""
    hints, texts = get_type_hints(settings), field_texts(settings)
    for field in dataclasses.fields(settings):
        path, kinds = prefix + field.name, kinds_of(hints[field.name])
        value = field.default if default is None else getattr(default, field.name)
        for each in kinds:
            own = value if type(value) is each else None
            place = (path, flag_of(each)) if len(kinds) > 1 else (choice, kind)
            yield from options_of(each, own, f"{path}.", *place)
        if not kinds:
            text = texts.get(field.name, "")
            yield Option(path=path, hint=hints[field.name], default=value, text=text, choice=choice, kind=kind)


def choices(settings: type, prefix: str = "") -> dict[str, dict[str, type]]:
    """Dotted name of every setting that is one of several kinds -> the kinds by the names that options write."""
    found: dict[str, dict[str, type]] = {}
    for name, hint in get_type_hints(settings).items():
        kinds = kinds_of(hint)
        if len(kinds) > 1:
            found[prefix + name] = {flag_of(kind): kind for kind in kinds}
        elif kinds:
            found |= choices(kinds[0], f"{prefix}{name}.")
    return found


def default_kind(settings: type, default: Any, path: str) -> str:
    """The kind of a setting where none is named, as options write it."""
    value, owner = default, settings
    for name in path.split("."):
        hints = get_type_hints(owner)
        if value is None:
            value = next(field.default for field in dataclasses.fields(owner) if field.name == name)
        else:
            value = getattr(value, name)
        value = None if value is dataclasses.MISSING else value
        owner = kinds_of(hints[name])[0]
    return flag_of(type(value))


def kinds_of(hint: Any) -> list[type]:
    """The settings classes that a value may be; none where it is a plain value."""
    return [option for option in (hint, *get_args(hint)) if dataclasses.is_dataclass(option)]


def types_of(hint: Any) -> tuple[Any, ...]:
    """The plain types that a value may have."""
    return (hint,) if get_origin(hint) in (Literal, tuple, None) else get_args(hint)


def wanted(hint: Any, value: object) -> str:
    """What a value must be, where one is of another type or none of the choices."""
    options = [option for option in types_of(hint) if option is not NoneType]
    choices = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
    if choices:
        return f"one of {listed(choices)}{did_you_mean(nearest(str(value), choices))}"
    return " or ".join(NAMES[get_origin(option) or option] for option in options)


def flag_of(kind: type) -> str:
    """A kind's name as options write it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def flag(path: str) -> str:
    """A dotted name as an option."""
    return f"--{path.replace('_', '-')}"


def field_texts(settings: type) -> dict[str, str]:
    """Field -> the string below it in the source, those of base classes included."""
    found: dict[str, str] = {}
    for base in reversed(settings.__mro__):
        source = getattr(sys.modules.get(base.__module__), "__file__", None)  # a file may run without being a module
        if dataclasses.is_dataclass(base) and source:
            found |= texts_in(source).get(base.__name__, {})
    return found


@functools.cache
def texts_in(source: str) -> dict[str, dict[str, str]]:
    """Class -> field -> the string below the field, of a Python file."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(Path(source).read_text("utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        own = found.setdefault(node.name, {})
        for field, below in zip(node.body, node.body[1:]):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                own[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return the known dotted names that a misspelt one may mean.

    Names with the same last part or with its initials (lr) come first, else the most alike.
    """
    names = list(known)
    last = word.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last]
    same = same or [name for name in names if initials(name) == last]
    if same:
        return sorted(same, key=lambda name: -difflib.SequenceMatcher(None, word, name).ratio())[:MOST_NEAR]
    return difflib.get_close_matches(word, names, n=1)


def initials(name: str) -> str:
    """First letters of the words of a dotted name's last part."""
    return "".join(part[:1] for part in re.split("[-_]", name.rpartition(".")[2]))


def did_you_mean(names: Iterable[str]) -> str:
    """The question that ends a message, or nothing where no name is near."""
    text = " or ".join(names)
    return f"; did you mean {text}?" if text else ""
