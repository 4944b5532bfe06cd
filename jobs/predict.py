"""Answer a file or a corpus with a fine-tuned model, or fill the [MASK]s of texts with a pretrained one.

    python jobs/predict.py --checkpoint output/finetune/NAME/model --input reviews.csv --text body --output out.parquet
    python jobs/predict.py --checkpoint hf://OWNER/NAME --input reviews.csv --text body --output answers.jsonl
    python jobs/predict.py --checkpoint output/runs/NAME/export --input masked.txt --output filled.jsonl

Every column of a table is kept and rows stay in order. The same command again continues an interrupted job.
"""

import sys
from collections.abc import Sequence

from pipeline.exit_codes import job_main


@job_main(stopped="stopped; the same command goes on with what is not answered yet")
def main(arguments: Sequence[str]) -> None:
    """Parse and answer; 0 when the output is there, 2 for what the user can fix."""
    from pipeline.config.command import Command
    from pipeline.config.predict import Predict
    from pipeline.environment import set_ray_defaults
    from pipeline.reporting import print_line

    config = Command(prog="jobs/predict.py", about=str(__doc__), settings=Predict).read(arguments)
    set_ray_defaults()
    from pipeline.workflows.predict import predict

    predict(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
