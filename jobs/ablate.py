"""Pretrain variants of one run with the same seeds, and test which gives the better encoder.

    python jobs/ablate.py pairs --corpus CORPUS --tokens 10M --seeds 3
    python jobs/ablate.py rate --corpus CORPUS --tokens 10M --seeds 5 --blimp BLIMP --task sst2 --data GLUE
    python jobs/ablate.py --over sampling.masking.share=0.15,0.3,0.4 --corpus CORPUS --minutes 15 --seeds 3
    python jobs/ablate.py --over sampling.pairs=next-sentence,single-segment --corpus CORPUS --tokens 10M

Run the same command again to continue: finished runs are not trained again, and a stopped run continues where it
stopped. A larger --seeds trains only the added seeds. Every option of jobs/pretrain.py sets the base run.

Several runs are trained at the same time: as many as the cluster has room for, but at most --at-once. On CPUs, several
runs fit only with --placement.threads. With --minutes, nothing else should run on the machine.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; the same command continues with the runs that are not finished")
def main(arguments: Sequence[str]) -> None:
    """Parse, train and compare; exit with 0 when the table is printed, 2 for errors that the user can fix."""
    from pipeline.ablation.command import read_ablate
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.ablations import ABLATIONS
    from pipeline.reporting import print_line
    from pipeline.workflows.inputs import check_inputs

    named = "\n".join(f"  {name:10} {', '.join(row.label for row in each.rows)}" for name, each in ABLATIONS.items())
    config = read_ablate(arguments, f"{__doc__}\nAblations by name, and their variants:\n{named}")
    set_ray_defaults()
    check_inputs(config)
    from pipeline.workflows.ablate import ablate

    print("", *ablate(config, print_line), sep="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
