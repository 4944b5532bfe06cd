"""Export a run's model as a Hugging Face folder, ONNX graphs, 8-bit ONNX graphs for CPUs, or a model in MLflow.

Each export has a model card and is checked before it counts as finished. A fine-tuned model can only be exported as a
Hugging Face folder.

    python jobs/export.py output/runs/bert-tiny-5a00950e
    python jobs/export.py output/runs/bert-tiny-5a00950e --kinds huggingface onnx int8 mlflow --register my-encoder
    python jobs/export.py output/finetune/mrpc-seed1-0a1b2c3d4e5f/model --license apache-2.0 --push-to-hub OWNER/NAME
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; finished exports are kept: give --kinds for the missing ones, or --replace for all")
def main(arguments: Sequence[str]) -> None:
    """Parse and export; exit with 0 when every export is made and checked, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.export import Export
    from pipeline.reporting import print_line

    command = Command(prog="jobs/export.py", about=str(__doc__), settings=Export, positional=True, several=True)
    config = command.read(arguments)
    set_ray_defaults()
    from pipeline.workflows.export import export

    export(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
