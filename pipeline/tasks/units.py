"""Units of scores: most are shares of 1 and shown in percent."""

UNITS = ("mean_absolute_error",)
"""Metrics in the unit of the labels. They are not shown in percent, and a lower value is better."""


def is_share(name: str) -> bool:
    """Return whether the best value of the score with this name is 1; such a score is shown in percent."""
    return not set(name.split(" ")) & set(UNITS)


def format_score(name: str, value: float | None, digits: int = 1) -> str:
    """Format a score: in percent with `digits` decimals, or in its unit with `digits` + 1 decimals; None becomes ""."""
    return "" if value is None else f"{100 * value:.{digits}f}" if is_share(name) else f"{value:.{digits + 1}f}"
