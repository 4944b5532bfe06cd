"""Durations as people read them."""

import pytest

from pipeline.reporting import duration, estimate


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0s"),
        (0.4, "0s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (200, "3m20s"),
        (3599.7, "1h00m"),
        (7500, "2h05m"),
        (360_000, "100h00m"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 s"),
        (89, "89 s"),
        (90, "2 minutes"),
        (3600, "60 minutes"),
        (5400, "1.5 hours"),
        (4_442_400, "1,234.0 hours"),
    ],
)
def test_estimates_have_one_unit(seconds: float, said: str) -> None:
    assert estimate(seconds) == said
