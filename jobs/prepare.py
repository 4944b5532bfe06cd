"""Prepare raw text for pretraining: sources -> shuffled document shards, a held-out set and a manifest.

    python jobs/prepare.py --folder corpora/builtin
    python jobs/prepare.py --corpus books/ --corpus 'https://example.org/dump.txt.gz' --folder corpora/mine

Run the same command again to continue a stopped preparation; it does nothing if the corpus is finished.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; the same command continues")
def main(arguments: Sequence[str]) -> None:
    """Parse, prepare and print a summary; exit with 0 when the corpus is ready, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.prepare import Prepare
    from pipeline.reporting import print_line

    config = Command(prog="jobs/prepare.py", about=str(__doc__), settings=Prepare).read(arguments)
    set_ray_defaults()
    from pipeline.corpus.summary import corpus_text
    from pipeline.workflows.prepare import prepare

    print(f"\n{corpus_text(prepare(config, print_line))}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
