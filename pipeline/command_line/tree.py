"""Build the tree of settings from given values by dotted name, and convert a value to its setting's type.

Words of a command line and files of settings both come here: they only differ in how a value is written.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pipeline.command_line.options import element_of, is_switch, kinds_of, types_of

NONE = "None"
"""Text that stands for None. It unsets a value that a preset or a default gives."""
Convert = Callable[[str, Any, Any], Any]
"""(dotted name, type hint, value as given) -> value of the setting; raises ConfigError if it does not fit."""


def build(
    settings: Any,
    default: Any,
    kinds: Mapping[str, type],
    given: Mapping[str, Any],
    convert: Convert,
    *,
    checked: bool = True,
    prefix: str = "",
) -> Any:
    """Return the settings with the given values; the other values come from `default`, or from the class if it is None.

    `kinds` has the class of every setting whose kind is not that in `default`. `prefix` is the dotted name of these
    settings and a dot. Settings are built after their parts and once only, so that their checks never see a default
    that is replaced; without `checked` they are not checked at all (see `unchecked`).
    """
    hints, values = get_type_hints(settings), dict[str, Any]()
    for field in dataclasses.fields(settings):
        path, hint = prefix + field.name, hints[field.name]
        value = field.default if default is None else getattr(default, field.name)
        if known := kinds_of(hint):
            kind = kinds.get(path) or (type(value) if type(value) in known else known[0])
            own = value if type(value) is kind else None
            value = build(kind, own, kinds, given, convert, checked=checked, prefix=f"{path}.")
        elif path in given:
            value = convert(path, hint, given[path])
        values[field.name] = value
    return settings(**values) if checked else unchecked(settings, values)


def unchecked(kind: type, values: Mapping[str, Any]) -> Any:
    """Build settings without running their checks, because options may still replace invalid values."""
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def fitted(hint: Any, value: Any) -> Any:
    """Return a value, as TOML has it, in a setting's type. Raises ValueError if it does not fit."""
    types = types_of(hint)
    if value == NONE and NoneType in types:
        return None
    if isinstance(value, bool) and is_switch(hint):
        return "on" if value else "off"
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(fitted(element_of(hint), item) for item in value)
    for known in types:
        if (get_origin(known) is Literal and value in get_args(known)) or type(value) is known:
            return value
        if known is float and type(value) is int:
            return float(value)
    raise ValueError(value)


def typed(hint: Any, text: str) -> Any:
    """Return a text of the command line as TOML would have it, for `fitted`."""
    types = types_of(hint)
    constants: dict[str, Any] = {str(each): each for known in types for each in get_args(known)}
    constants |= {"True": True, "False": False} if bool in types else {}
    constants |= {"true": True, "false": False} if is_switch(hint) else {}
    if text in constants or (text == NONE and NoneType in types):
        return constants.get(text, text)
    for known in (int, float):
        if known in types:
            try:
                return known(text)
            except ValueError:
                continue
    return text
