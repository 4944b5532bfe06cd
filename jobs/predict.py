"""Answer a file or a corpus with a fine-tuned model, or fill the [MASK]s of texts with a pretrained one.

    python jobs/predict.py --checkpoint output/finetune/NAME/model --input reviews.csv --text body --output out.parquet
    python jobs/predict.py --checkpoint hf://OWNER/NAME --input reviews.csv --text body --output answers.jsonl
    python jobs/predict.py --checkpoint output/runs/NAME/export --input masked.txt --output filled.jsonl

Every column of a table is kept and rows stay in order. The same command again continues an interrupted job.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Parse and answer; 0 when the output is there, 2 for what the user can fix."""
    from pipeline.config.command import Command
    from pipeline.config.predict import Predict
    from pipeline.environment import set_ray_defaults
    from pipeline.errors import PipelineError
    from pipeline.stopping import exit_code

    try:
        config = Command(prog="jobs/predict.py", about=str(__doc__), settings=Predict).read(arguments)
        set_ray_defaults()
        from pipeline.predict.job import predict

        predict(config, report=lambda line: print(line, flush=True))
        return 0
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; the same command goes on with what is not answered yet", file=sys.stderr)
        return exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
