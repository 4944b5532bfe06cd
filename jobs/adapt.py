"""Adapt an encoder to your own text, and search the text with it: compare what is found before and after.

    python jobs/adapt.py --corpus notes/ --init hf://OWNER/NAME --plan
    python jobs/adapt.py --corpus documents.jsonl --init EXPORT --queries queries.jsonl --judgements qrels.tsv

It prepares the text, trains on masked words, trains vectors on pairs of texts, and embeds the text before and after.
Run the same command again to continue a stopped job. The adapted encoder is a folder of sentence-transformers.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.arguments import Extra
from pipeline.command_line.exit_codes import job_main

EXTRA = (
    Extra(
        name="plan",
        text="Print the steps with their work, size on disk and what is done already, and times from a few measured "
        "steps; then stop.",
    ),
)


@job_main(stopped="stopped; the same command continues")
def main(arguments: Sequence[str]) -> None:
    """Parse, adapt and report; exit with 0 when the results are printed, 2 for errors that the user can fix."""
    from pipeline.command_line.arguments import extras
    from pipeline.command_line.command import Command
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.adapt import COMMON, Adapt
    from pipeline.reporting import print_line
    from pipeline.workflows.inputs import check_inputs

    command = Command(prog="jobs/adapt.py", about=str(__doc__), settings=Adapt, common=COMMON, extra=EXTRA)
    words = command.words(arguments)
    config = command.parse(words)
    set_ray_defaults()
    if "plan" in extras(words):
        from pipeline.adapt.plan import plan_lines

        print(*plan_lines(config, print_line), sep="\n")
        return
    check_inputs(config)
    from pipeline.workflows.adapt import adapt

    adapt(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
