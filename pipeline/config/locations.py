"""Settings that are locations: their types, and the function that makes them absolute where settings are read."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pipeline.locations import absolute

BUILTIN = "builtin"
"""The source that is no location: docstrings of the installed packages."""


@dataclasses.dataclass(frozen=True)
class MadeAbsolute:
    """Mark of a type: `with_absolute_locations` replaces its values by what `by` returns for them."""

    by: Callable[[str], str]


def _absolute_source(source: str) -> str:
    """Return "builtin" or LOCATION[::KEY=VALUE]… with the location absolute."""
    location, *options = source.split("::")
    return "::".join([location if location in ("", BUILTIN) else absolute(location), *options])


Location = Annotated[str, MadeAbsolute(absolute)]
"""A file or folder, by path or URL."""
SourceText = Annotated[str, MadeAbsolute(_absolute_source)]
"""A source of a corpus: "builtin" or LOCATION[::KEY=VALUE]…."""
Settings = TypeVar("Settings", bound=Any)


def with_absolute_locations(settings: Settings) -> Settings:
    """Return the settings with every location absolute; each job calls it once, and all code below relies on it.

    Raises ConfigError for a URL with a login in it, and for an invalid path.
    """
    hints, changed = get_type_hints(type(settings), include_extras=True), {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            changed[field.name] = with_absolute_locations(value)
        elif value is not None and (mark := mark_of(hints[field.name])):
            changed[field.name] = tuple(map(mark.by, value)) if isinstance(value, tuple) else mark.by(value)
    return dataclasses.replace(settings, **changed)


def mark_of(hint: Any) -> MadeAbsolute | None:
    """Return the mark in a field's type, such as Location | None or tuple[SourceText, ...]; None without one."""
    if isinstance(hint, MadeAbsolute):
        return hint
    parts = (*getattr(hint, "__metadata__", ()), *get_args(hint))
    return next((mark for part in parts if (mark := mark_of(part))), None)
