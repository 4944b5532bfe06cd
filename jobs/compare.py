"""Fine-tune two encoders on the same tasks with the same seeds, and test whether their scores differ.

    python jobs/compare.py --checkpoint A --checkpoint B --data FOLDER --task mrpc --task cola --seeds 5
    python jobs/compare.py --checkpoint A --checkpoint B --train my.csv --text review --label stars
    python jobs/compare.py --checkpoint A --random-weights --data FOLDER --task sst2  # the gain from pretraining

Run the same command again to continue: only trials without a result are trained. A larger --seeds trains only the
added seeds.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; the same command continues with the trials that have no result yet")
def main(arguments: Sequence[str]) -> None:
    """Parse, train and compare; exit with 0 when the comparison is printed, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.predict import COMMON_OF_COMPARE, Compare
    from pipeline.reporting import print_line
    from pipeline.workflows.inputs import check_inputs

    command = Command(prog="jobs/compare.py", about=str(__doc__), settings=Compare, common=COMMON_OF_COMPARE)
    config = command.read(arguments)
    set_ray_defaults()
    check_inputs(config)
    from pipeline.workflows.compare import compare

    print("", *compare(config, print_line), sep="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
