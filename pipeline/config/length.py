"""Length of a run in place of its steps: a number of tokens, or of epochs over its text."""

import math
from collections.abc import Mapping
from typing import Any

from pipeline.config.checks import require, require_above_zero

LENGTHS = ("steps", "tokens", "epochs")
"""Settings of which a command gives one at most: each says how long a run is."""
UNITS = {"k": 10**3, "M": 10**6, "B": 10**9}
"""Suffix of a number of tokens -> its factor."""


def number_of_tokens(text: str) -> int:
    """Parse a whole number above 0, such as 250k, 1.5M or 20_000_000. Raises ConfigError for any other text."""
    unit = UNITS.get(text[-1:], 1)
    try:
        number = float(text.removesuffix(text[-1:]) if unit > 1 else text) * unit
        whole = round(number)
    except (ValueError, OverflowError):
        number, whole = 0.5, 0
    require(
        number >= 1 and number == whole,
        f"tokens ({text}) must be a whole number above 0, such as 250k, 10M or 2_000_000",
    )
    return whole


def require_length(tokens: str | None, epochs: float | None) -> None:
    """Raise ConfigError for a number of tokens or epochs that cannot be, or for both."""
    if tokens is not None:
        number_of_tokens(tokens)
    if epochs is not None:
        require_above_zero("epochs", epochs)
        require(math.isfinite(epochs), f"epochs ({epochs}) must be a finite number")
    require_one({name: value for name, value in (("tokens", tokens), ("epochs", epochs)) if value is not None})


def require_one(given: Mapping[str, Any]) -> None:
    """Raise ConfigError if several of LENGTHS are given, by their names and values."""
    lengths = [f"{name} ({given[name]})" for name in LENGTHS if name in given]
    require(
        len(lengths) < 2,
        f"{' and '.join(lengths)} cannot be set together, because each says how long the run is: give one of them",
    )
