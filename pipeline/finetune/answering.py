"""Progress of answering rows: how many, how fast, and the time left."""

import time

from pipeline.durations import estimate
from pipeline.reporting import Report

SECONDS = 5.0
"""Minimum time between two lines."""


class AnswerProgress:
    """Count answered rows and report progress from time to time; the clock starts with the first rows, after the model
    is loaded.
    """

    def __init__(self, report: Report, total: int | None, before: int = 0, name: str = "") -> None:
        """`total`: number of rows, None while unknown; `before`: rows answered in an earlier run."""
        self.report, self.total, self.rows, self.name = report, total, before, name
        self.first, self.begun = before, 0.0
        self.said = time.monotonic()

    def add(self, rows: int) -> None:
        """Count `rows` more answered rows."""
        now, self.rows = time.monotonic(), self.rows + rows
        if not self.begun:
            self.first, self.begun = self.rows, now
        if now - self.said >= SECONDS:
            self.said = now
            self.report(line(self.name, self.rows, self.total, self.rows - self.first, now - self.begun))


def line(name: str, rows: int, total: int | None, timed: int, seconds: float) -> str:
    """Return a progress line; `timed` rows were answered in `seconds`."""
    of = f" of {total:,}" if total is not None else ""
    said = f"{f'{name}: ' if name else ''}{rows:,}{of} rows answered"
    if not (timed and seconds):
        return said
    rate = timed / seconds
    speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
    left = f", about {estimate((total - rows) / rate)} left" if total is not None and total > rows else ""
    return f"{said}, {speed} rows/s{left}"
