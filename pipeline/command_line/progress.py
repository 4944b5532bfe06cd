"""Show the progress of long work: in a terminal as a bar with rate and time left, in a log as plain lines."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pipeline.reporting import Report

REPORT_SECONDS = 2.0
MILLION = 1e6


class Progress:
    """Counter of finished things, out of `total`, and of processed characters.

    `task`, `verb` and `things` are words in the log lines, as in "prepare: reading: 3 of 10 files".
    """

    def __init__(self, report: Report, verb: str, things: str, total: int, task: str = "prepare") -> None:
        self.report, self.verb, self.things, self.total, self.task = report, verb, things, total, task
        self.done = self.before = self.characters = 0
        self.start = self.last = time.monotonic()
        self.bar: Bar | None = None
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            self.bar = Bar(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> "Progress":
        if self.bar:
            self.bar.start()
            self.row = self.bar.add_task(f"{self.verb} {self.things}", total=self.total, rate="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()
        if kind is None:
            self.report(self.line(time.monotonic() - self.start))

    def skip(self, things: int) -> None:
        """Count things that an earlier run finished. The estimate of the time left ignores these things."""
        self.done += things
        self.before += things
        if self.bar:
            self.bar.update(self.row, advance=things)

    def advance(self, things: int, characters: int = 0) -> None:
        """Count newly finished things."""
        self.done += things
        self.characters += characters
        now = time.monotonic()
        if self.bar:
            self.bar.update(self.row, advance=things, rate=self.rate(now - self.start))
        elif now - self.last >= REPORT_SECONDS and self.done < self.total:
            self.last = now
            self.report(self.line(now - self.start))

    def line(self, seconds: float) -> str:
        """Return a log line: the things done so far, the rate, and the time left at this rate."""
        left = seconds * (self.total - self.done) / max(1, self.done - self.before)
        parts = [
            f"{self.task}: {self.verb}: {self.done:,} of {self.total:,} {self.things}",
            self.rate(seconds),
            f"{left:.0f} s left" if left else "",
        ]
        return ", ".join(part for part in parts if part)

    def rate(self, seconds: float) -> str:
        """Return words for the characters processed, in total and per second; "" if no text was processed."""
        millions = self.characters / MILLION
        return f"{millions:,.0f} M characters, {millions / max(1e-3, seconds):,.1f} M/s" if self.characters else ""
