"""Report the progress of a job, line by line."""

from collections.abc import Callable
from typing import Any

from pipeline.config.called import as_called

Report = Callable[[str], None]
"""Function that takes one progress line."""


def print_line(line: str) -> None:
    """Print a line at once, without buffering, also to a file or pipe.

    If the user called `bertstream`, `python jobs/JOB.py` in the line becomes `bertstream JOB` (`as_called`).
    """
    print(as_called(line), flush=True)


def no_op(*_: Any) -> None:
    """Do nothing. Used in place of a report, or of a function that only rank 0 may call."""
