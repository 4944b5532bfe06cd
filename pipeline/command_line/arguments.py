"""Check the words of a command line against the settings, and convert their values.

Hand-written because words may come in any order: `--schedule.warmup-steps 9` also before `schedule:constant-rate`.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, get_origin

from pipeline.command_line.options import (
    Option,
    choices,
    default_kind,
    did_you_mean,
    element_of,
    flag,
    nearest,
    options_of,
    wanted,
)
from pipeline.command_line.tree import fitted, typed
from pipeline.errors import ConfigError, listed
from pipeline.errors import shown as quoted

VALUES = ("true", "false", "none")
"""Values that users write by mistake after a boolean option, which takes no value."""
OPTION = re.compile(r"-+[^\W\d]|--$")
"""Start of a word that is never the value of the option before it. Negative numbers and "-" may be values."""


@dataclass(frozen=True, kw_only=True)
class Extra:
    """An option of a command that is not a setting, such as --show."""

    name: str
    text: str
    metavar: str = ""
    """Placeholder of the option's value in the help; empty if the option takes no value."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One word of a command line with its values."""

    text: str
    values: tuple[str, ...] = ()
    """Values as written; "True" or "False" for a boolean option."""
    option: Option | None = None
    """The option that the word names, or None. If several kinds have an option of this name: the first kind's option.
    """
    kind: tuple[str, str] | None = None
    """(setting, kind) if the word chooses a kind, such as ("optimizer", "lamb"); else None."""
    extra: Extra | None = None


def words_of(
    arguments: Sequence[str],
    settings: type,
    extra: Sequence[Extra] = (),
    positional: bool = False,
    several: bool = False,
) -> list[Argument]:
    """Return the words of a command line, in order.

    With `positional`, required options are given as plain words in the order of the settings. With `several`, a
    repeatable option takes all values up to the next option. Raises ConfigError for an unknown word (the message has
    the nearest name), a missing value, a value of the wrong type, or a value after an option that takes no value.
    """
    known = Known(settings, extra, positional)
    words: list[Argument] = []
    position = 0
    while position < len(arguments):
        word, count = known.word(arguments[position], arguments[position + 1 :], several)
        words.append(word)
        position += 1 + count
    return words


def extras(words: Sequence[Argument]) -> dict[str, str]:
    """Return {name: value} of the given options that are not settings; "" for an option that takes no value."""
    return {word.extra.name: "".join(word.values) for word in words if word.extra is not None}


class Known:
    """The options and kinds of a command."""

    def __init__(self, settings: type, extra: Sequence[Extra], positional: bool) -> None:
        self.options: dict[str, Option] = {}
        self.hints: dict[str, list[Any]] = {}
        """Dotted name -> type hints of its values; kinds may have a setting of the same name and another type."""
        self.positional: list[Option] = []
        """Options that the next plain words give."""
        for option in options_of(settings):
            self.hints.setdefault(option.path, []).append(option.hint)
            if positional and option.required:
                self.positional.append(option)
            else:
                self.options.setdefault(option.flag, option)
        self.off = {option.off: option for option in self.options.values() if option.boolean or option.switch}
        self.extras = {f"--{option.name}": option for option in extra}
        self.choices = choices(settings)

    def option(self, name: str) -> Option | None:
        """Return the option that a word names, or None. Hyphens and underscores are interchangeable."""
        name = name.replace("_", "-")
        return self.options.get(name) or self.off.get(name)

    def word(self, text: str, following: Sequence[str], several: bool) -> tuple[Argument, int]:
        """Return the Word of `text`, and the number of words in `following` that are its values."""
        name, equals, value = text.partition("=")
        option, extra = self.option(name), self.extras.get(name)
        many = several and option is not None and option.many
        values = (value,) if equals else _values(following if many else following[:1])
        count = 0 if equals else len(values)
        if option is not None and option.boolean:
            _refuse_value(text, option, following[:1])
            return Argument(text=text, values=(str(name.replace("_", "-") == option.flag),), option=option), 0
        if option is not None and option.switch and not equals:
            if name.replace("_", "-") == option.off:
                return Argument(text=text, values=("off",), option=option), 0
            if not values or ":" in values[0]:  # the next word is an option or a kind
                return Argument(text=text, values=("on",), option=option), 0
        if option is not None:
            if not values:
                raise ConfigError(self.without_value(option.flag, option.metavar, following))
            self.check(option, values)
            return Argument(text=text, values=values, option=option), count
        if extra is not None and extra.metavar:
            if not "".join(values):
                raise ConfigError(self.without_value(name, extra.metavar, following))
            return Argument(text=text, values=values, extra=extra), count
        if extra is not None and equals:
            raise ConfigError(f"{name} takes no value: write {name} instead of {text}")
        kind = kind_in(text, self.choices)
        if extra is not None or kind is not None:
            return Argument(text=text, extra=extra, kind=kind), 0
        if not self.positional or (OPTION.match(text) and " " not in text):
            raise ConfigError(self.unexpected(text))
        option = self.positional.pop(0)
        converted(option.path, option.hint, (text,))
        return Argument(text=text, values=(text,), option=option), 0

    def check(self, option: Option, values: Sequence[str]) -> None:
        """Raise ConfigError, of the first kind with this option, if no kind accepts the values."""
        _, *others = self.hints[option.path]
        for hint in others:
            with suppress(ConfigError):
                converted(option.path, hint, values)
                return
        converted(option.path, option.hint, values)

    def without_value(self, flag: str, metavar: str, following: Sequence[str]) -> str:
        """Return the message for an option without a value, before the words `following`."""
        name = following[0].partition("=")[0] if following else ""
        is_value = name and self.option(name) is None and name not in self.extras
        instead = f", or {flag}={following[0]} if that is the value" if is_value else ""
        return f"{flag} needs a value: {flag} {metavar}{instead}"

    def unexpected(self, word: str) -> str:
        """Return the message for an unknown word, with the nearest name."""
        names = [option.path for option in self.options.values()] + [option.name for option in self.extras.values()]
        if word.startswith("-"):
            name = word.partition("=")[0]
            near = nearest(name.lstrip("-").replace("-", "_"), names)
            return f"option {name} does not exist{did_you_mean(map(flag, near)) or '; --help all lists every option'}"
        kinds = [f"{shown(path)}:{kind}" for path, known in self.choices.items() for kind in known]
        near = nearest(word, kinds) if ":" in word else [flag(name) for name in nearest(word.replace("-", "_"), names)]
        return f"word {word} is not an option{f' or kind such as {kinds[-1]}' if kinds else ''}{did_you_mean(near)}"


def _refuse_value(word: str, option: Option, following: Sequence[str]) -> None:
    """Raise ConfigError if a boolean option is given a value, such as --replace True; `following` is the next word, if
    any.
    """
    name, equals, value = word.partition("=")
    text = value if equals else "".join(following)
    if not equals and text.lower() not in VALUES:
        return
    means_off = (text.lower() == "false") != (name.replace("_", "-") == option.off)
    right = option.off if means_off else option.flag
    instead = "leave the option out instead of writing" if text.lower() == "none" else f"write {right} instead of"
    raise ConfigError(f"{option.flag} takes no value: {instead} {word if equals else f'{word} {text}'}")


def _values(following: Sequence[str]) -> tuple[str, ...]:
    """Return the words up to the next option."""
    return tuple(takewhile(lambda word: not OPTION.match(word), following))


def converted(path: str, hint: Any, values: Sequence[str]) -> Any:
    """Return the values of an option in the option's type: all of them if it is repeatable, otherwise the last one.

    Numbers of a repeatable option may also be divided by commas. Raises ConfigError for a value of the wrong type.
    """
    many = get_origin(hint) is tuple
    one = element_of(hint) if many else hint
    if many and one in (int, float):
        values = [number for value in values for number in value.split(",")]
    fitting = []
    for value in values if many else values[-1:]:
        try:
            fitting.append(fitted(one, typed(one, value)))
        except ValueError as error:
            raise ConfigError(f"{path} ({quoted(value)}) must be {wanted(hint, value)}") from error
    return tuple(fitting) if many else fitting[0]


def kind_in(word: str, known: dict[str, dict[str, type]]) -> tuple[str, str] | None:
    """Return (setting, kind) for a word such as optimizer:lamb; None for a word that chooses no kind.

    `known` is the result of `choices`. Raises ConfigError for a kind that the setting does not have.
    """
    path, colon, kind = word.partition(":")
    path, kind = path.replace("-", "_"), kind.replace("_", "-")
    if not colon or path not in known:
        return None
    if kind not in known[path]:
        near = [f"{shown(path)}:{name}" for name in nearest(kind, known[path])]
        raise ConfigError(f"{word} does not exist: {shown(path)} is {' or '.join(known[path])}{did_you_mean(near)}")
    return path, kind


def shown(path: str) -> str:
    """Return a dotted name as written on the command line."""
    return path.replace("_", "-")


def chosen_kinds(words: Sequence[Argument], settings: type, default: Any = None) -> dict[str, type]:
    """Return dotted name -> class for every setting with several kinds.

    If no word chooses a setting's kind, the kind comes from `default`, or from the class if `default` is None. Raises
    ConfigError if the kind of a setting is chosen twice, or if an option does not belong to the chosen kind.
    """
    known, chosen = choices(settings), dict[str, str]()
    for word in words:
        if word.kind is not None:
            path, kind = word.kind
            if path in chosen:
                raise ConfigError(
                    f"{shown(path)} is chosen twice: leave out {shown(path)}:{chosen[path]} or {word.text}"
                )
            chosen[path] = kind
    kinds = {path: chosen.get(path) or default_kind(settings, default, path) for path in known}
    for word in words:
        if word.option is not None and word.option.choice:
            _refuse_other_kind(word.option, settings, kinds[word.option.choice])
    return {path: known[path][kind] for path, kind in kinds.items()}


def _refuse_other_kind(option: Option, settings: type, kind: str) -> None:
    """Raise ConfigError if an option does not belong to the chosen kind."""
    kinds = [each.kind for each in options_of(settings) if each.path == option.path]
    if kind not in kinds:
        choice = shown(option.choice)
        owners = listed(f"{choice}:{name}" for name in kinds)
        wanted_kind = "that kind" if len(kinds) == 1 else "one of these kinds"
        raise ConfigError(
            f"{option.flag} belongs to {owners}, but {choice} is {kind}: choose {wanted_kind}, or leave the option out"
        )
