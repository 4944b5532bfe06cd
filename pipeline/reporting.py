"""Lines for people during a job: the type of what takes them, and printing them at once."""

from collections.abc import Callable

Report = Callable[[str], None]


def print_line(line: str) -> None:
    """Print a line without waiting for more, also where the output is a file or a pipe."""
    print(line, flush=True)
