"""Types for settings that are locations, and a function that makes all locations in a job's settings absolute."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pipeline.files.locations import absolute

BUILTIN = "builtin"
"""Name of the built-in source: the docstrings of the installed packages. This name is not a location."""


@dataclasses.dataclass(frozen=True)
class MadeAbsolute:
    """Mark in a field's type: `with_absolute_locations` applies `by` to the field's values."""

    by: Callable[[str], str]


def _absolute_source(source: str) -> str:
    """Return a source, "builtin" or LOCATION[::KEY=VALUE]…, with its location made absolute."""
    location, *options = source.split("::")
    return "::".join([location if location in ("", BUILTIN) else absolute(location), *options])


Location = Annotated[str, MadeAbsolute(absolute)]
"""A file or folder, by path or URL."""
SourceText = Annotated[str, MadeAbsolute(_absolute_source)]
"""A source of a corpus: "builtin" or LOCATION[::KEY=VALUE]…."""
Settings = TypeVar("Settings", bound=Any)


def with_absolute_locations(settings: Settings) -> Settings:
    """Return the settings with every location absolute.

    Each workflow calls this function first, because all later code needs absolute locations. Raises ConfigError for a
    URL that contains a login, and for an invalid path.
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
    """Return the mark in a field's type, such as Location | None or tuple[SourceText, ...]; None if the type has no
    mark.
    """
    if isinstance(hint, MadeAbsolute):
        return hint
    parts = (*getattr(hint, "__metadata__", ()), *get_args(hint))
    return next((mark for part in parts if (mark := mark_of(part))), None)
