"""Fine-tune a pretrained encoder on tasks or your own files, with several seeds on Ray Tune, and print a result table.

    python jobs/finetune.py --checkpoint output/runs/bert-tiny-5a00950e/export --data FOLDER --task glue
    python jobs/finetune.py --checkpoint FOLDER_OR_hf://OWNER/NAME --train my.csv --text review --label stars
    python jobs/finetune.py --checkpoint FOLDER --data DATA --task mrpc --search.over optimizer.learning_rate=1e-4,3e-4

Run the same command again to continue: only trials without a result are trained.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; the same command continues with the trials that have no result yet")
def main(arguments: Sequence[str]) -> None:
    """Parse, train and report; exit with 0 when every trial has a result, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.finetune import COMMON, Finetune
    from pipeline.reporting import print_line
    from pipeline.workflows.inputs import check_inputs

    config = Command(prog="jobs/finetune.py", about=str(__doc__), settings=Finetune, common=COMMON).read(arguments)
    set_ray_defaults()
    check_inputs(config)
    from pipeline.workflows.finetune import finetune

    print(*finetune(config, print_line).closing, sep="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
