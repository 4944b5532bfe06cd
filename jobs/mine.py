"""Mine hard negatives: for pairs of a query and a matching text, find texts that are similar and do not match.

    python jobs/mine.py --vectors output/vectors/mine --pairs pairs.jsonl --output negatives.jsonl
    python jobs/finetune.py --checkpoint EXPORT --train negatives.jsonl --kind similarity --similarity.loss contrastive

The model that made the vectors embeds the pairs. Fine-tuning reads the output.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; nothing was written")
def main(arguments: Sequence[str]) -> None:
    """Parse and mine; exit with 0 when the output is complete, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.config.mine import Mine
    from pipeline.reporting import print_line
    from pipeline.workflows.inputs import check_inputs

    config = Command(prog="jobs/mine.py", about=str(__doc__), settings=Mine).read(arguments)
    check_inputs(config)
    from pipeline.workflows.mine import mine

    mine(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
