"""Compare nested answers with those that were recorded."""

import json
from collections.abc import Iterator
from typing import Any

import pytest


def values_of(answers: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of all numbers and texts in JSON values, and the lengths of lists."""
    if isinstance(answers, list):
        yield f"{name}.length", len(answers)
    parts = answers.items() if isinstance(answers, dict) else enumerate(answers) if isinstance(answers, list) else None
    if parts is None:
        yield name, answers
        return
    for key, part in parts:
        yield from values_of(part, f"{name}.{key}")


def assert_same(found: Any, before: Any, tolerance: float = 1e-5) -> None:
    """Fail unless all that was recorded is there: equal texts and whole numbers, and nearly equal floats."""
    now = dict(values_of(json.loads(json.dumps(found))))
    wrong = {
        name: (now.get(name), value)
        for name, value in values_of(before)
        if now.get(name) != (pytest.approx(value, abs=tolerance) if isinstance(value, float) else value)
    }
    assert not wrong, f"(now, before): {wrong}"
