"""Fine-tune a pretrained encoder on GLUE tasks, each with several seeds, and print their table.

    python jobs/finetune.py --checkpoint output/runs/bert-tiny-5a00950e/export --glue FOLDER --task glue
    python jobs/finetune.py --checkpoint FOLDER_OR_hf://OWNER/NAME --glue FOLDER --task stsb --seeds 5 --optimizer.learning-rate 1e-4

The same command again trains only what has no result yet.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Parse, train and report; 0 when every trial has its result, 2 for what the user can fix."""
    import tyro

    from pipeline.config.finetune import Finetune
    from pipeline.environment import set_ray_defaults
    from pipeline.errors import PipelineError

    try:
        config = tyro.cli(Finetune, prog="python jobs/finetune.py", description=__doc__, args=list(arguments), config=(tyro.conf.UseAppendAction, tyro.conf.FlagConversionOff))
        set_ray_defaults()
        from pipeline.finetune import finetune, table

        print(f"\n{table(finetune(config, report=lambda line: print(line, flush=True)))}")
        return 0
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command trains what has no result yet", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
