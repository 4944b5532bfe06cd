"""Report the progress of answering rows: rows answered, rows per second, and estimated time left."""

import threading
import time

from pipeline.reporting import Report, Waiting, estimate

SECONDS = 5.0
"""Minimum time between two progress lines."""


class AnswerProgress:
    """Count answered rows and report progress, at most once every SECONDS.

    The rate is measured from the first call of `add`, because the time before this call includes loading the model.
    Several threads may use it.
    """

    def __init__(
        self, report: Report, total: int | None, before: int = 0, name: str = "", done: str = "rows answered"
    ) -> None:
        """Start to count at `before`, the number of rows that an earlier run answered.

        `total` is the number of all rows, including the rows of the earlier run, or None if unknown. Each line begins
        with `name`, unless it is empty. `done` are words for the counted rows.
        """
        self.report, self.total, self.rows, self.name, self.done = report, total, before, name, done
        self.first, self.begun = before, 0.0
        self.said, self.shown = time.monotonic(), before
        self.waiting = Waiting(report, f"loading the model, no {done} yet")
        self.lock = threading.Lock()

    def model_loaded(self) -> None:
        """Say from now on that no rows are answered yet, and no longer that the model is loaded."""
        with self.lock:
            self.waiting.words = f"no {self.done} yet"

    def add(self, rows: int) -> None:
        """Count `rows` more answered rows."""
        with self.lock:
            now, self.rows = time.monotonic(), self.rows + rows
            if not self.begun:
                self.first, self.begun = self.rows, now
            self._show(self.rows, now)

    def beat(self, unfinished: int = 0) -> None:
        """Report progress if a line is due; `unfinished` rows are answered in parts that are not complete yet."""
        with self.lock:
            now, rows = time.monotonic(), self.rows + unfinished
            if not self.begun and unfinished:
                self.first, self.begun = rows, now
            if self.begun:
                self._show(rows, now)
            else:
                self.waiting.beat()

    def _show(self, rows: int, now: float) -> None:
        """Report `rows` answered rows, unless the last line is newer than SECONDS or has as many rows."""
        if now - self.said >= SECONDS and rows > self.shown:
            self.said, self.shown = now, rows
            self.report(line(self.name, rows, self.total, rows - self.first, now - self.begun, self.done))


def line(name: str, rows: int, total: int | None, timed: int, seconds: float, done: str = "rows answered") -> str:
    """Return a progress line with the rate `timed` / `seconds`.

    If `timed` or `seconds` is 0, the line has no rate and no time left.
    """
    of_total = f" of {total:,}" if total is not None else ""
    answered = f"{f'{name}: ' if name else ''}{rows:,}{of_total} {done}"
    if not (timed and seconds):
        return answered
    rate = timed / seconds
    speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
    left = f", about {estimate((total - rows) / rate)} left" if total is not None and total > rows else ""
    return f"{answered}, {speed} {done.split()[0]}/s{left}"
