"""How far the answering of rows is: of how many, how fast, and how long the rest takes."""

import time
from collections.abc import Callable

from pipeline.finetune.plan import duration

SECONDS = 5.0
"""Between two lines."""


class AnswerProgress:
    """Counts answered rows and says so now and then; the clock starts at the first rows, when the model is loaded."""

    def __init__(self, report: Callable[[str], None], total: int | None, before: int = 0, name: str = "") -> None:
        """`total`: rows in all, None where that is not known yet; `before`: those that were answered earlier."""
        self.report, self.total, self.rows, self.name = report, total, before, name
        self.first, self.begun = before, 0.0
        self.said = time.monotonic()

    def add(self, rows: int) -> None:
        """Take the news that so many more are answered."""
        now, self.rows = time.monotonic(), self.rows + rows
        if not self.begun:
            self.first, self.begun = self.rows, now
        if now - self.said >= SECONDS:
            self.said = now
            self.report(line(self.name, self.rows, self.total, self.rows - self.first, now - self.begun))


def line(name: str, rows: int, total: int | None, timed: int, seconds: float) -> str:
    """A line of progress; `timed` rows were answered in the `seconds` of the clock."""
    of = f" of {total:,}" if total is not None else ""
    said = f"{f'{name}: ' if name else ''}{rows:,}{of} rows answered"
    if not (timed and seconds):
        return said
    rate = timed / seconds
    speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
    left = f", about {duration((total - rows) / rate)} left" if total is not None and total > rows else ""
    return f"{said}, {speed} rows/s{left}"
