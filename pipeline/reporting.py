"""Progress lines of a job: the type of the functions that take a line, and a function that prints the line at once."""

from collections.abc import Callable

from pipeline.config.called import as_called

Report = Callable[[str], None]


def print_line(line: str) -> None:
    """Print a line without buffering, so that it appears at once in a file or pipe too.

    If the user started `bertstream`, `python jobs/JOB.py` in the line becomes `bertstream JOB` (`as_called`).
    """
    print(as_called(line), flush=True)
