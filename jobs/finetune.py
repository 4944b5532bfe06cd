"""Fine-tune a pretrained encoder on tasks or your own files, with several seeds on Ray Tune, and print a result table.

    python jobs/finetune.py --checkpoint output/runs/bert-tiny-5a00950e/export --data FOLDER --task glue
    python jobs/finetune.py --checkpoint FOLDER_OR_hf://OWNER/NAME --train my.csv --text review --label stars
    python jobs/finetune.py --checkpoint FOLDER --data DATA --task mrpc --search.over optimizer.learning_rate=1e-4,3e-4

The same command again trains only what has no result yet.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Parse, train and report; 0 when every trial has its result, 2 for what the user can fix."""
    from pipeline.config.command import Command
    from pipeline.config.finetune import COMMON, Finetune
    from pipeline.environment import set_ray_defaults
    from pipeline.errors import PipelineError
    from pipeline.stopping import exit_code

    try:
        config = Command(prog="jobs/finetune.py", about=str(__doc__), settings=Finetune, common=COMMON).read(arguments)
        set_ray_defaults()
        from pipeline.grid.job import finetune

        found = finetune(config, report=lambda line: print(line, flush=True))
        print(*found.closing, sep="\n")
        return 0
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; the same command trains what has no result yet", file=sys.stderr)
        return exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
