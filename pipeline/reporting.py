"""Lines for people during a job: the type of what takes them, and printing them at once."""

from collections.abc import Callable

from pipeline.config.called import as_called

Report = Callable[[str], None]


def print_line(line: str) -> None:
    """Print a line at once, also into a file or pipe; commands in it are as the user started this one."""
    print(as_called(line), flush=True)
