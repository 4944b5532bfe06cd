"""Compare nested answers with those that were recorded."""

import json
from collections.abc import Iterator
from typing import Any

import pytest


def values_of(answers: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of all numbers and texts in JSON values."""
    parts = answers.items() if isinstance(answers, dict) else enumerate(answers) if isinstance(answers, list) else None
    if parts is None:
        yield name, answers
        return
    for key, part in parts:
        yield from values_of(part, f"{name}.{key}")


def assert_same(found: Any, before: Any, tolerance: float = 1e-5) -> None:
    """Fail unless all texts and whole numbers are equal, and all floating-point numbers nearly so."""
    found, before = (dict(values_of(json.loads(json.dumps(each)))) for each in (found, before))
    texts = {name: value for name, value in before.items() if not isinstance(value, float)}
    assert {name: found.get(name) for name in texts} == texts and found.keys() == before.keys()
    numbers = {name: value for name, value in before.items() if name not in texts}
    assert {name: found[name] for name in numbers} == pytest.approx(numbers, abs=tolerance)
