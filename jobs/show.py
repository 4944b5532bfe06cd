"""Print text as the pipeline sees it, and draw pictures: of a corpus, of training runs and of a model.

    python jobs/show.py documents output/corpora/1a2b3c4d5e6f
    python jobs/show.py dropped output/corpora/1a2b3c4d5e6f
    python jobs/show.py statistics output/corpora/1a2b3c4d5e6f --picture statistics.png --vocabulary.path vocab.txt
    python jobs/show.py examples output/corpora/1a2b3c4d5e6f --vocabulary.path vocab.txt --number 5
    python jobs/show.py seen output/runs/bert-tiny-5a00950e 345 --row 7
    python jobs/show.py heads output/runs/bert-tiny-5a00950e --picture heads.svg

The job writes no file except the picture.
"""

import sys
from collections.abc import Sequence
from typing import get_args

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped")
def main(arguments: Sequence[str]) -> None:
    """Parse and print; `job_main` turns errors into exit codes."""
    from pipeline.command_line.command import read_one_of
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.show import View

    config = read_one_of(get_args(View), arguments, "jobs/show.py", str(__doc__), positional=True)
    set_ray_defaults()
    from pipeline.workflows.show import show

    show(config)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
