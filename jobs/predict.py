"""Run a fine-tuned model on every row of a file or corpus, or fill the [MASK]s of texts with a pretrained model.

    python jobs/predict.py --checkpoint output/finetune/NAME/model --input reviews.csv --text body --output out.parquet
    python jobs/predict.py --checkpoint hf://OWNER/NAME --input reviews.csv --text body --output answers.jsonl
    python jobs/predict.py --checkpoint output/runs/NAME/export --input masked.txt --output filled.jsonl

The output keeps the columns of an input table and the order of the rows. Run the same command again to continue a
stopped job.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; the same command continues with the rows that have no answer yet")
def main(arguments: Sequence[str]) -> None:
    """Parse and predict; exit with 0 when the output is written, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.predict import Predict
    from pipeline.reporting import print_line
    from pipeline.workflows.inputs import check_inputs

    config = Command(prog="jobs/predict.py", about=str(__doc__), settings=Predict).read(arguments)
    set_ray_defaults()
    check_inputs(config)
    print_line(f"loading {config.checkpoint}")  # the imports take seconds, too
    from pipeline.workflows.predict import predict

    predict(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
