"""Check the words of a command line against the settings, and sort the words as the parser requires.

In the sorted command line, kinds such as `optimizer:lamb` come last, each before its own options.

Hand-written because tyro requires the word of a kind to come before the options of this kind, even with
CascadeSubcommandArgs: tyro 1.0.17 refused 52 of 60 valid command lines in shuffled order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pipeline.config.options import (
    Option,
    choices,
    default_kind,
    did_you_mean,
    element_of,
    flag,
    nearest,
    options_of,
    types_of,
    wanted,
)
from pipeline.errors import ConfigError, listed
from pipeline.errors import shown as quoted

VALUES = ("true", "false", "none")
"""Values that users write by mistake after a boolean option, which takes no value."""


@dataclass(frozen=True, kw_only=True)
class Extra:
    """An option of a command that is not a setting, such as --show."""

    name: str
    text: str
    metavar: str = ""
    """Placeholder of the option's value in the help; empty if the option takes no value."""


@dataclass(frozen=True, kw_only=True)
class Word:
    """One word of a command line with its values."""

    text: str
    values: tuple[str, ...] = ()
    option: Option | None = None
    """The option that the word names, or None. If several kinds have an option of this name: the first kind's option.
    """
    kind: tuple[str, str] | None = None
    """(setting, kind) if the word chooses a kind, such as ("optimizer", "lamb"); else None."""
    extra: Extra | None = None

    @property
    def alone(self) -> bool:
        """Whether the word is neither an option nor a kind."""
        return self.option is None and self.kind is None and self.extra is None


def words_of(
    arguments: Sequence[str], settings: type, extra: Sequence[Extra] = (), positional: int = 0, several: bool = False
) -> list[Word]:
    """Return the words of a command line, in order.

    `positional` is the maximum number of words that are neither options nor kinds. With `several`, a repeatable option
    takes all values up to the next option. Raises ConfigError for an unknown word (the message has the nearest name), a
    missing value, a value of the wrong type, or a value after an option that takes no value.
    """
    known = Known(settings, extra)
    words: list[Word] = []
    position = 0
    while position < len(arguments):
        word, count = known.word(arguments[position], arguments[position + 1 :], several)
        words.append(word)
        position += 1 + count
    for word in [word for word in words if word.alone][positional:]:
        raise ConfigError(known.unexpected(word.text))
    return words


def extras(words: Sequence[Word]) -> dict[str, str]:
    """Return {name: value} of the given options that are not settings; "" for an option that takes no value."""
    return {word.extra.name: "".join(word.values) for word in words if word.extra is not None}


class Known:
    """The options and kinds of a command."""

    def __init__(self, settings: type, extra: Sequence[Extra]) -> None:
        self.options: dict[str, Option] = {}
        for option in options_of(settings):
            self.options.setdefault(option.flag, option)
        self.off = {option.off: option for option in self.options.values() if option.boolean}
        self.extras = {f"--{option.name}": option for option in extra}
        self.choices = choices(settings)

    def option(self, name: str) -> Option | None:
        """Return the option that a word names, or None. Hyphens and underscores are interchangeable."""
        name = name.replace("_", "-")
        return self.options.get(name) or self.off.get(name)

    def word(self, text: str, following: Sequence[str], several: bool) -> tuple[Word, int]:
        """Return the Word of `text`, and the number of words in `following` that are its values."""
        name, equals, value = text.partition("=")
        option, extra = self.option(name), self.extras.get(name)
        if option is not None and option.boolean:
            _refuse_value(text, option, following[:1])
            return Word(text=text, option=option), 0
        if option is not None:
            count = 0 if equals else self.values(following, several and option.many)
            values = (value,) if equals else tuple(following[:count])
            if not values:
                raise ConfigError(f"{option.flag} needs a value: {option.flag} {option.metavar}")
            _refuse_type(option, values)
            return Word(text=text, values=() if equals else values, option=option), count
        if extra is not None and extra.metavar:
            count = 0 if equals else self.values(following, False)
            values = (value,) if equals else tuple(following[:count])
            if not "".join(values):
                raise ConfigError(f"{name} needs a value: {name} {extra.metavar}")
            return Word(text=text, values=values, extra=extra), count
        if extra is not None and equals:
            raise ConfigError(f"{name} takes no value: write {name} instead of {text}")
        if extra is None and text.startswith("-"):
            raise ConfigError(self.unexpected(text))
        return Word(text=text, extra=extra, kind=kind_in(text, self.choices)), 0

    def values(self, following: Sequence[str], many: bool) -> int:
        """Return the number of words in `following` that are values of the option before them; at most 1 without
        `many`.
        """
        count = 0
        for word in following[: None if many else 1]:
            name = word.partition("=")[0]
            if self.option(name) is not None or name in self.extras or (many and word.startswith("--")):
                break
            count += 1
        return count

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


def _refuse_type(option: Option, values: Sequence[str]) -> None:
    """Raise ConfigError for a value of the wrong type."""
    types = (element_of(option.hint),) if option.many else types_of(option.hint)
    choices = [choice for known in types if get_origin(known) is Literal for choice in get_args(known)]
    for value in values:
        number = any(known in types and _is_number(known, value) for known in (int, float))
        none = value == "None" and NoneType in types
        if not (str in types or number or none or value in choices):
            raise ConfigError(f"{option.path} ({quoted(value)}) must be {wanted(option.hint, value)}")


def _is_number(kind: type, value: str) -> bool:
    """Return whether `kind`, int or float, accepts a word."""
    try:
        kind(value)
    except ValueError:
        return False
    return True


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


def in_order(words: Sequence[Word], settings: type, default: Any = None) -> list[str]:
    """Return the words in the order that the parser requires, without options that are not settings.

    If no word chooses a setting's kind, the kind comes from `default`, or from the class if `default` is None. Raises
    ConfigError if the kind of a setting is chosen twice, or if an option does not belong to the chosen kind.
    """
    kinds: dict[str, str] = {}
    for word in words:
        if word.kind is not None:
            path, kind = word.kind
            if path in kinds:
                raise ConfigError(
                    f"{shown(path)} is chosen twice: leave out {shown(path)}:{kinds[path]} or {word.text}"
                )
            kinds[path] = kind
    plain = [word for word in words if word.kind is None and word.extra is None and not _of_choice(word)]
    first = [text for word in plain for text in _texts(word)]
    for path in choices(settings):
        own = [word for word in words if _of_choice(word) == path]
        if not own and path not in kinds:
            continue
        kind = kinds.get(path) or default_kind(settings, default, path)
        for word in own:
            _refuse_other_kind(word, settings, kind)
        first += [f"{shown(path)}:{kind}", *(text for word in own for text in _texts(word))]
    return first


def _of_choice(word: Word) -> str:
    """Return the setting with the kind that a word's option belongs to, such as optimizer.

    The result is empty if the word is not an option, or if the option belongs to no kind.
    """
    return word.option.choice if word.option is not None else ""


def _refuse_other_kind(word: Word, settings: type, kind: str) -> None:
    """Raise ConfigError if an option does not belong to the chosen kind."""
    assert word.option is not None
    kinds = [option.kind for option in options_of(settings) if option.path == word.option.path]
    if kind not in kinds:
        choice = shown(word.option.choice)
        owners = listed(f"{choice}:{name}" for name in kinds)
        wanted_kind = "that kind" if len(kinds) == 1 else "one of these kinds"
        raise ConfigError(
            f"{word.option.flag} belongs to {owners}, but {choice} is {kind}: choose {wanted_kind}, or leave the "
            "option out"
        )


def _texts(word: Word) -> Iterator[str]:
    """Yield a word and its values as the parser expects them.

    A boolean option that may also be None gets True or False as its value.
    """
    option = word.option
    if option is not None and option.boolean and option.hint is not bool:
        yield from (option.flag, "False" if word.text.replace("_", "-") == option.off else "True")
    else:
        yield from (word.text, *word.values)
