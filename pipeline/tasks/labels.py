"""Labels as programs write them: nan for a missing number, 1.0 for the class 1, and spans of annotation tools."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.errors import DataError, shown
from pipeline.tasks.task import finite, list_in, plain_number

STARTS, ENDS = ("start", "start_offset", "begin"), ("end", "end_offset")
"""Keys of a span's first character, and of its end, in the exports of annotation tools."""


def nan_is_missing(values: Iterable[Any]) -> bool:
    """Return whether the text nan stands for a missing number in a column: all other labels are numbers.

    Else it is a class, such as the language Min Nan (ISO 639-3).
    """
    others = {str(value).strip() for value in values if value is not None and not is_nan(value)} - {""}
    return bool(others) and are_numbers(others)


def is_nan(value: Any) -> bool:
    """Return whether a value is the number NaN or the text nan."""
    return value.strip().lower() == "nan" if isinstance(value, str) else isinstance(value, float) and math.isnan(value)


def are_numbers(labels: Iterable[str]) -> bool:
    """Return whether all labels are finite numbers."""
    try:
        return all(math.isfinite(finite(label)) for label in labels)
    except ValueError:
        return False


def class_names(labels: Iterable[str]) -> dict[str, str]:
    """Return label -> name of its class. Labels such as 1 and 1.0 have one class, which is named 1."""
    spellings: dict[str, set[str]] = {}
    for label in labels:
        spellings.setdefault(plain_number(label), set()).add(label)
    return {label: plain if len(written) > 1 else label for plain, written in spellings.items() for label in written}


def are_class_numbers(values: set[float]) -> bool:
    """Return whether numbers are those from 0 to K - 1, as data sets number their K classes."""
    return values == set(range(len(values)))


def require_no_spans(where: str, column: str, value: Any) -> None:
    """Raise DataError if a value holds spans of a text's characters; `where` is file and line."""
    members = list_in(value)
    if (span := next(filter(None, map(_span_in, [value] if members is None else members)), None)) is not None:
        raise DataError(
            f"{where}: column {column} has spans of characters, such as {shown(span)}, which are not read: split each "
            'text into words and give each word a tag, as in {"words": ["Tom", "left"], "tags": ["B-PER", "O"]}, with '
            "--text words --label tags"
        )


def _span_in(value: Any) -> Any:
    """Return the first span in a value, which may be nested: [start, end, label], or an object with the keys STARTS and
    ENDS; None if there is none.
    """
    if isinstance(value, dict):
        if all(any(type(value.get(key)) is int for key in keys) for keys in (STARTS, ENDS)):
            return value
        return next((span for inner in value.values() if (span := _span_in(inner)) is not None), None)
    if not isinstance(value, list):
        return None
    if _is_triple(value):
        return value
    return next((span for inner in value if (span := _span_in(inner)) is not None), None)


def _is_triple(value: Sequence[Any]) -> bool:
    """Return whether a list is [start, end, label]."""
    return len(value) == 3 and type(value[0]) is type(value[1]) is int and isinstance(value[2], str)
