"""Audit a run: tell which texts, such as those of a test set, it has seen, at which steps and with which masks.

    python jobs/audit.py output/runs/bert-tiny-5a00950e --text test.csv
    python jobs/audit.py output/runs/bert-tiny-5a00950e --benchmark blimp,glue,squad --data FOLDER

A text counts as seen if a row of the training has 13 words in a row of it, or a whole text of 5 to 12 words. Case and
punctuation do not matter. The steps are those up to the newest checkpoint.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; nothing was written")
def main(arguments: Sequence[str]) -> None:
    """Parse and search; exit with 0 when the answer is printed, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.audit import Audit
    from pipeline.reporting import print_line

    command = Command(prog="jobs/audit.py", about=str(__doc__), settings=Audit, positional=True, several=True)
    config = command.read(arguments)
    set_ray_defaults()
    from pipeline.workflows.audit import audit

    audit(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
