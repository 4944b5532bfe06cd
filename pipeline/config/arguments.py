"""The words of a command line: checked against the settings, and in the order that the parser wants, kinds such as `optimizer:lamb` last,
each before its own options."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pipeline.config.options import Option, choices, default_kind, did_you_mean, flag, nearest, options_of, types_of, wanted
from pipeline.errors import ConfigError, listed
from pipeline.errors import shown as quoted

VALUES = ("true", "false", "none")
"""What followed a yes-or-no option before it was a flag."""


@dataclass(frozen=True, kw_only=True)
class Extra:
    """An option of a command that is no setting."""

    name: str
    text: str
    metavar: str = ""
    """Form of its value; none: it has no value."""


@dataclass(frozen=True, kw_only=True)
class Word:
    """One word of a command line with the values that belong to it."""

    text: str
    values: tuple[str, ...] = ()
    option: Option | None = None
    """The option that it is one of: several kinds may have an option of one name, and then it is that of the first."""
    kind: tuple[str, str] | None = None
    """Setting and kind, where it chooses one."""
    extra: Extra | None = None


def words_of(arguments: Sequence[str], settings: type, extra: Sequence[Extra] = (), positional: int = 0, several: bool = False) -> list[Word]:
    """The words of a command line; `several`: an option of many takes all values up to the next option. Raises ConfigError for a word that
    is no option, kind or one of so many positional ones, with the nearest name, and for a value that is missing or too many."""
    known = Known(settings, extra)
    found, place, alone = [], 0, 0
    while place < len(arguments):
        text, place = arguments[place], place + 1
        name, equals, value = text.partition("=")
        option, other, chosen = known.option(name), known.extras.get(name), None
        if option is not None and option.boolean:
            refuse_value(text, option, arguments[place : place + 1])
            found.append(Word(text=text, option=option))
        elif option is not None or (other is not None and other.metavar):
            many = several and option is not None and option.many
            count = 0 if equals else known.values(arguments[place:], many)
            if not (count or value):
                raise ConfigError(f"{name} needs a value: {name} {option.metavar if option is not None else other.metavar}")
            values = tuple(arguments[place : place + count])
            if option is not None:
                refuse_type(option, [value] if equals else values)
            found.append(Word(text=text, values=(value,) if other is not None and equals else values, option=option, extra=other))
            place += count
        elif other is not None and not equals:
            found.append(Word(text=text, extra=other))
        elif chosen := kind_in(text, known.choices):
            found.append(Word(text=text, kind=chosen))
        else:
            alone += not text.startswith("-")
            if alone > positional or text.startswith("-"):
                raise ConfigError(known.unexpected(text))
            found.append(Word(text=text))
    return found


def extras(words: Sequence[Word]) -> dict[str, str]:
    """The options that are no settings, with their values."""
    return {word.extra.name: "".join(word.values) for word in words if word.extra is not None}


class Known:
    """What the words of a command may be."""

    def __init__(self, settings: type, extra: Sequence[Extra]) -> None:
        self.options: dict[str, Option] = {}
        for option in options_of(settings):
            self.options.setdefault(option.flag, option)
        self.off = {option.off: option for option in self.options.values() if option.boolean}
        self.extras = {f"--{one.name}": one for one in extra}
        self.choices = choices(settings)

    def option(self, name: str) -> Option | None:
        """The option that a word names, if any; hyphens and underscores are one."""
        name = name.replace("_", "-")
        return self.options.get(name) or self.off.get(name)

    def values(self, following: Sequence[str], many: bool) -> int:
        """How many of the words that follow an option are its values."""
        count = 0
        for word in following[: None if many else 1]:
            name = word.partition("=")[0]
            if self.option(name) is not None or name in self.extras or (many and word.startswith("--")):
                break
            count += 1
        return count

    def unexpected(self, word: str) -> str:
        """The message for a word that is nothing known, with the nearest name."""
        names = [option.path for option in self.options.values()] + [one.name for one in self.extras.values()]
        if word.startswith("-"):
            name = word.partition("=")[0]
            near = nearest(name.lstrip("-").replace("-", "_"), names)
            return f"option {name} does not exist{did_you_mean(map(flag, near)) or '; --help all lists every option'}"
        kinds = [f"{shown(path)}:{kind}" for path, names in self.choices.items() for kind in names]
        near = nearest(word, kinds) if ":" in word else [flag(name) for name in nearest(word.replace("-", "_"), names)]
        return f"word {word} is no option{f' or kind such as {kinds[-1]}' if kinds else ''}{did_you_mean(near)}"


def refuse_value(word: str, option: Option, following: Sequence[str]) -> None:
    """Raise ConfigError where a yes-or-no option has a value, as it once had."""
    name, equals, value = word.partition("=")
    given = value if equals else "".join(following)
    if not equals and given.lower() not in VALUES:
        return
    turned = (given.lower() == "false") != (name.replace("_", "-") == option.off)
    instead = "leave it out" if given.lower() == "none" else f"write {option.off if turned else option.flag}"
    raise ConfigError(f"{option.flag} takes no value: {instead} instead of {word if equals else f'{word} {given}'}")


def refuse_type(option: Option, values: Sequence[str]) -> None:
    """Raise ConfigError for a value that is none of an option's type."""
    types = types_of(option.hint)
    choices = [choice for known in types if get_origin(known) is Literal for choice in get_args(known)]
    for value in values:
        number = any(known in types and is_number(known, value) for known in (int, float))
        if not (option.many or str in types or number or value in choices or (value == "None" and NoneType in types)):
            raise ConfigError(f"{option.path} ({quoted(value)}) must be {wanted(option.hint, value)}")


def is_number(kind: type, value: str) -> bool:
    """Whether a word is a number of a kind."""
    try:
        kind(value)
    except ValueError:
        return False
    return True


def kind_in(word: str, known: dict[str, dict[str, type]]) -> tuple[str, str] | None:
    """The setting and the kind that a word such as optimizer:lamb chooses, if any. Raises ConfigError for a kind that the setting does not have."""
    path, colon, kind = word.partition(":")
    path, kind = path.replace("-", "_"), kind.replace("_", "-")
    if not colon or path not in known:
        return None
    if kind not in known[path]:
        near = [f"{shown(path)}:{name}" for name in nearest(kind, known[path])]
        raise ConfigError(f"{word} does not exist: {shown(path)} is {' or '.join(known[path])}{did_you_mean(near)}")
    return path, kind


def shown(path: str) -> str:
    """A dotted name as words of a command line have it."""
    return path.replace("_", "-")


def in_order(words: Sequence[Word], settings: type, default: Any = None) -> list[str]:
    """The words as the parser wants them; where an option of a kind stands without it, the kind is that of `default`, or the class's own.

    Raises ConfigError where a setting's kind is chosen twice, or an option belongs to another kind than the chosen one.
    """
    kinds: dict[str, str] = {}
    for word in words:
        if word.kind is not None:
            path, kind = word.kind
            if path in kinds:
                raise ConfigError(f"{shown(path)} is chosen twice: leave out {shown(path)}:{kinds[path]} or {word.text}")
            kinds[path] = kind
    first = [text for word in words if word.kind is None and word.extra is None and not of_choice(word) for text in texts(word)]
    for path in choices(settings):
        own = [word for word in words if of_choice(word) == path]
        if not own and path not in kinds:
            continue
        kind = kinds.get(path) or default_kind(settings, default, path)
        for word in own:
            refuse_other_kind(word, settings, kind)
        first += [f"{shown(path)}:{kind}", *(text for word in own for text in texts(word))]
    return first


def of_choice(word: Word) -> str:
    """The setting of several kinds that an option belongs to, if any."""
    return word.option.choice if word.option is not None else ""


def refuse_other_kind(word: Word, settings: type, kind: str) -> None:
    """Raise ConfigError where an option is not one of the chosen kind's."""
    assert word.option is not None
    of = [option.kind for option in options_of(settings) if option.path == word.option.path]
    if kind not in of:
        choice = shown(word.option.choice)
        raise ConfigError(f"{word.option.flag} belongs to {listed(f'{choice}:{one}' for one in of)}, and {choice} is {kind}: add that word, or leave the option out")


def texts(word: Word) -> Iterator[str]:
    """A word as the parser takes it: an option that may be yes, no or neither has a value there."""
    option = word.option
    if option is not None and option.boolean and option.hint is not bool:
        yield from (option.flag, "False" if word.text.replace("_", "-") == option.off else "True")
    else:
        yield from (word.text, *word.values)
