"""Settings by dotted name; flags, MLflow parameters and messages use the same names."""

import dataclasses
from typing import Any, get_args, get_type_hints


def flatten(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Return {dotted name: value} of every setting; tuples become lists.

    A setting of several kinds also has an entry with the class name of its kind, such as {"schedule": "LinearDecay"}.
    """
    flat: dict[str, Any] = {}
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        if dataclasses.is_dataclass(value):
            if f.type is not type(value):
                flat[prefix + f.name] = type(value).__name__
            flat |= flatten(value, f"{prefix}{f.name}.")
        else:
            flat[prefix + f.name] = list(value) if isinstance(value, tuple) else value
    return flat


def unflatten(kind: type, flat: dict[str, Any], prefix: str = "") -> Any:
    """Rebuild settings of the class `kind` from the result of `flatten`; names that the class does not have are
    ignored.
    """
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        key = prefix + name
        kinds = [option for option in (hint, *get_args(hint)) if dataclasses.is_dataclass(option)]
        if kinds:
            chosen = next(option for option in kinds if len(kinds) == 1 or option.__name__ == flat[key])
            values[name] = unflatten(chosen, flat, f"{key}.")
        else:
            values[name] = tuple(flat[key]) if isinstance(flat[key], list) else flat[key]
    return kind(**values)
