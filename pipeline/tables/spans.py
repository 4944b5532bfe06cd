"""Spans of characters, as annotation tools export them: they are refused, because tags belong to words."""

import ast
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pipeline.errors import DataError, shown

STARTS, ENDS = ("start", "start_offset", "begin"), ("end", "end_offset")
"""Keys of a span's first character, and of its end, in the exports of annotation tools."""
QUOTED = r"""(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""
"""A text as Python writes it."""
TEXTS = re.compile(rf"\[{QUOTED}(?:[,\s]+{QUOTED})*\]")
"""A list of texts as Python writes it, or NumPy, without commas; ['O', 'B-PER'] is not JSON."""


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


def list_in(value: Any) -> list[Any] | None:
    """Return `value` if it is a list, or parse it if it is the text of a list, in JSON or like TEXTS; None for other
    values.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
        with suppress(ValueError, SyntaxError):
            return list(map(ast.literal_eval, re.findall(QUOTED, value))) if TEXTS.fullmatch(value.strip()) else None
    return value if isinstance(value, list) else None


def _is_triple(value: Sequence[Any]) -> bool:
    """Return whether a list is [start, end, label]."""
    return len(value) == 3 and type(value[0]) is type(value[1]) is int and isinstance(value[2], str)
