"""Score a fine-tuned model on labelled examples, or a file of answers to SQuAD's questions, beside what needs no model.

    python jobs/score.py --checkpoint output/finetune/NAME/model --input labelled.csv --text body --label stars
    python jobs/score.py --checkpoint hf://OWNER/NAME --input labelled.csv --text body --label stars
    python jobs/score.py --checkpoint output/finetune/NAME/model --task sst2 --data FOLDER --split dev
    python jobs/score.py --predictions answers.json --input dev-v1.1.json

Examples are a labelled file of your own, or a split of a task by its name.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Parse and score; 0 when it is done, 2 for what the user can fix."""
    from pipeline.config.command import Command
    from pipeline.config.predict import Score
    from pipeline.errors import PipelineError

    try:
        config = Command(prog="jobs/score.py", about=str(__doc__), settings=Score).read(arguments)
        from pipeline.predict.score import score

        score(config, report=lambda line: print(line, flush=True))
        return 0
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
