"""The command `bertstream` of the installed package: `bertstream JOB` does the same as `python jobs/JOB.py`."""

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from pipeline.command_line.exit_codes import job_main
from pipeline.command_line.options import did_you_mean, nearest
from pipeline.errors import JOBS

HELP = ("-h", "--help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job that the first word names and return the job's exit code; return 2 if there is no such job.

    `arguments` None: the words of the command line.
    """
    return _run(sys.argv[1:] if arguments is None else arguments)


@job_main(stopped="stopped")
def _run(words: Sequence[str]) -> int:
    """Print the usage, or run a job."""
    if not words or words[0] in HELP:
        print(_usage())
        return 0 if words else 2
    if words[0] not in JOBS:
        choices = ", ".join(JOBS)
        print(f"error: job {words[0]} must be one of {choices}{did_you_mean(nearest(words[0], JOBS))}", file=sys.stderr)
        return 2
    return _job(words[0]).main(words[1:])


def _job(name: str) -> ModuleType:
    """Import a job, from the folder beside `pipeline` if that is a checkout, as in the working_dir of a Ray job."""
    try:
        return importlib.import_module(f"pipeline.jobs.{name}")
    except ModuleNotFoundError as error:
        if error.name != "pipeline.jobs":
            raise
        return importlib.import_module(f"jobs.{name}")


def _usage() -> str:
    """Return the help of `bertstream`, with one line per job: the first line of the job's docstring."""
    jobs = {name: str(_job(name).__doc__).splitlines()[0] for name in JOBS}
    lines = [f"  {name:10}{line}" for name, line in jobs.items()]
    return "\n".join(
        ["usage: bertstream JOB [OPTIONS]", "", *lines, "", "bertstream JOB --help lists a job's options."]
    )
