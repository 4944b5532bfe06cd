"""Exit codes of jobs: 0 done, 1 start the command again, 2 an error to fix, 130 or 143 stopped, 141 nobody reads on"""

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from pipeline.command_line import standard_output
from pipeline.command_line.environment import set_torch_defaults, stops_with_client, submission_id
from pipeline.command_line.stopping import exit_code
from pipeline.errors import ConfigError, PipelineError, as_called
from pipeline.reporting import print_line

Main = Callable[[Sequence[str]], int | None]


def job_main(stopped: str) -> Callable[[Main], Callable[[Sequence[str]], int]]:
    """Decorate a job's main so that it prints errors in one line, without a traceback, and returns an exit code.

    `stopped` is the line to print after Ctrl-C or SIGTERM. If main returns None, the exit code is 0. The decorated main
    first sets torch's environment variables. If the reader of standard output ends first (`| head`), nothing is said.
    """

    def decorate(main: Main) -> Callable[[Sequence[str]], int]:
        @functools.wraps(main)
        def with_exit_code(arguments: Sequence[str]) -> int:
            set_torch_defaults()
            standard_output.guard()
            try:
                with standard_output.flushed():
                    if (job := submission_id()) and not stops_with_client():
                        _say_how_to_stop(job)
                    return main(arguments) or 0
            except PipelineError as error:
                print(as_called(f"error: {error}"), file=sys.stderr)
                return error.exit_code
            except ModuleNotFoundError as error:
                package = str(error.name).partition(".")[0]
                if error.name is None or find_spec(package) is not None:  # a part of a package is missing: a defect
                    raise
                print(
                    f"error: package {package} is not installed, and this command needs it: install it, or all "
                    "packages of pyproject.toml (pip install .)",
                    file=sys.stderr,
                )
                return ConfigError.exit_code
            except KeyboardInterrupt:
                if standard_output.abandoned.is_set():
                    return standard_output.NOT_READ
                print(stopped, file=sys.stderr)
                return exit_code()

        return with_exit_code

    return decorate


@functools.cache
def _say_how_to_stop(job: str) -> None:
    """Print once how to stop a Ray job. In `bertstream JOB`, both the command and the job are decorated."""
    print_line(f"Ray job {job}: Ctrl-C leaves it running; to stop it: ray job stop {job}")
