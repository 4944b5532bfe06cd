"""Report the progress of a job, line by line, with durations as people read them."""

import shlex
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import as_called

Report = Callable[[str], None]
"""Function that takes one progress line."""
FIRST_SECONDS, LONGEST_SECONDS = 5.0, 60.0
"""Seconds before the first line; each following pause is twice as long, up to LONGEST_SECONDS."""
BEAT_SECONDS = 1.0
RAY_FILES = "_ray_pkg_"
"""Part of the name of a folder in which Ray keeps the files of a job."""


def print_line(line: str) -> None:
    """Print a line at once, without buffering, also to a file or pipe.

    If the user called `bertstream`, `python jobs/JOB.py` in the line becomes `bertstream JOB` (`as_called`).
    """
    print(as_called(line), flush=True)


def to_paste(command: str) -> str:
    """Return a command that begins with `python jobs/` with the interpreter below the working folder, if there is one.

    `make` runs jobs with that of .venv, which is not the `python` of the shell that reads this.
    """
    return as_called(command).replace("python jobs/", f"{shlex.quote(from_here(sys.executable, 'python'))} jobs/")


def from_here(path: str, elsewhere: str | None = None) -> str:
    """Return a path below the working folder as a relative one; any other path or URL as it is, or as `elsewhere`.

    The working folder of a job that brought its own files to a cluster is Ray's, which its reader does not know.
    """
    if Path(path).is_relative_to(Path.cwd()) and RAY_FILES not in str(Path.cwd()):
        return str(Path(path).relative_to(Path.cwd()))
    return path if elsewhere is None else elsewhere


def no_op(*_: Any) -> None:
    """Do nothing. Used in place of a report, or of a function that only rank 0 may call."""


class Waiting:
    """Report at growing intervals what the job waits for, until the wait is over."""

    def __init__(self, report: Report, words: str) -> None:
        """Begin to wait. `words` say what the job does meanwhile."""
        self.report, self.words = report, words
        self.begun = self.said = time.monotonic()
        self.pause, self.over = FIRST_SECONDS, False

    def beat(self) -> None:
        """Report a line if one is due."""
        now = time.monotonic()
        if not self.over and now - self.said >= self.pause:
            self.said, self.pause = now, min(2 * self.pause, LONGEST_SECONDS)
            self.report(f"{self.words}, {duration(now - self.begun)} so far")

    def end(self, line: str) -> None:
        """End the wait, and report the first line of the result."""
        self.over = True
        self.report(line)


@contextmanager
def beating(beat: Callable[[], None]) -> Generator[None]:
    """Call `beat` every BEAT_SECONDS in a thread until the block ends."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(BEAT_SECONDS):
            beat()

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(BEAT_SECONDS)


def duration(seconds: float) -> str:
    """Format a measured duration to the second: 45s, 3m20s, 2h05m."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


def estimate(seconds: float) -> str:
    """Format an estimated duration in one unit: 45 s, 12 minutes, 1.5 hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:,.1f} hours"
