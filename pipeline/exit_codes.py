"""Exit codes of jobs: 0 done, 2 for what the user can fix, 1 if the same command continues, 130 or 143 stopped."""

import functools
import sys
from collections.abc import Callable, Sequence

from pipeline.config.called import as_called
from pipeline.errors import PipelineError
from pipeline.stopping import exit_code

Main = Callable[[Sequence[str]], int | None]


def job_main(stopped: str) -> Callable[[Main], Callable[[Sequence[str]], int]]:
    """Make a job's main return its exit code: an error that the user can fix is one line, and so is a stop.

    `stopped` is that line. A main that returns nothing has done its job.
    """

    def decorate(main: Main) -> Callable[[Sequence[str]], int]:
        @functools.wraps(main)
        def with_exit_code(arguments: Sequence[str]) -> int:
            try:
                return main(arguments) or 0
            except PipelineError as error:
                print(as_called(f"error: {error}"), file=sys.stderr)
                return error.exit_code
            except KeyboardInterrupt:
                print(stopped, file=sys.stderr)
                return exit_code()

        return with_exit_code

    return decorate
