"""Fine-tune two encoders on the same tasks with the same seeds, and say whether one is better.

    python jobs/compare.py --checkpoint A --checkpoint B --data FOLDER --task mrpc --task cola --seeds 5
    python jobs/compare.py --checkpoint A --checkpoint B --train my.csv --text review --label stars
    python jobs/compare.py --checkpoint A --random-weights --data FOLDER --task sst2  # what did A's pretraining give?

The same command again trains only what has no result yet, so more seeds cost only themselves.
"""

import sys
from collections.abc import Sequence

from pipeline.exit_codes import job_main


@job_main(stopped="stopped; the same command trains what has no result yet")
def main(arguments: Sequence[str]) -> None:
    """Parse, train and compare; 0 when all is compared, 2 for what the user can fix."""
    from pipeline.config.command import Command
    from pipeline.config.predict import COMMON_OF_COMPARE, Compare
    from pipeline.environment import set_ray_defaults
    from pipeline.reporting import print_line

    command = Command(prog="jobs/compare.py", about=str(__doc__), settings=Compare, common=COMMON_OF_COMPARE)
    config = command.read(arguments)
    set_ray_defaults()
    from pipeline.workflows.compare import compare

    print("", *compare(config, print_line), sep="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
