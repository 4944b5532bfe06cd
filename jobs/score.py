"""Score a model: on labelled examples or BLiMP, for what it forgot in fine-tuning, or by the vectors of its texts.

    python jobs/score.py --checkpoint output/finetune/NAME/model --input labelled.csv --text body --label stars
    python jobs/score.py --checkpoint hf://OWNER/NAME --input labelled.csv --text body --label stars
    python jobs/score.py --checkpoint output/finetune/NAME/model --task sst2 --data FOLDER --split dev
    python jobs/score.py --predictions answers.json --input dev-v1.1.json
    python jobs/score.py --checkpoint output/runs/NAME --blimp BLIMP --pairs fifth
    python jobs/score.py --checkpoint output/finetune/TRIAL/model --heldout output/runs/NAME
    python jobs/score.py --checkpoint EXPORT --similarity STS-B/dev.tsv
    python jobs/score.py --checkpoint EXPORT --retrieval COLLECTION --against hf://OWNER/NAME
    python jobs/score.py --checkpoint EXPORT --triplets triplets.jsonl

The labelled examples are your own file (--input) or a split of a known task (--task). The scores of baselines are
printed too.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped")
def main(arguments: Sequence[str]) -> None:
    """Parse and score; exit with 0 when the scores are printed, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.config.predict import Score
    from pipeline.reporting import print_line
    from pipeline.workflows.inputs import check_inputs

    config = Command(prog="jobs/score.py", about=str(__doc__), settings=Score).read(arguments)
    check_inputs(config)
    from pipeline.workflows.score import score

    score(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
