"""Pretrain on 10 million words with three seeds and score the models on BLiMP: from text to a table, in one command.

    python jobs/speedrun.py encoder-s --text FOLDER
    python jobs/speedrun.py encoder-xs --text FOLDER --blimp BLIMP --epochs 2 --seeds 1

The rules and the records are in jobs/SPEEDRUN.md. Run the same command again to continue: finished runs are not trained
again, and a stopped run continues. Nothing else should run on the machine.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; the same command continues")
def main(arguments: Sequence[str]) -> None:
    """Parse, train and score; exit with 0 when the table is printed, 2 for errors that the user can fix."""
    from pipeline.ablation.command import read_speedrun
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.reporting import print_line

    config = read_speedrun(arguments, str(__doc__))
    set_ray_defaults()
    from pipeline.workflows.speedrun import speedrun

    print("", *speedrun(config, print_line), sep="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
