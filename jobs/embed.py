"""Compute vectors of texts with your own or a published encoder, to search or compare the texts.

    python jobs/embed.py --checkpoint output/runs/NAME/export --input corpora/mine --output output/vectors/mine
    python jobs/embed.py --checkpoint hf://OWNER/NAME --input reviews.csv --text body --output output/vectors/reviews

Long texts are cut into chunks. Run the same command again to continue a stopped job; jobs/search.py searches the
vectors.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; the same command continues with the texts that have no vector yet")
def main(arguments: Sequence[str]) -> None:
    """Parse and embed; exit with 0 when all vectors are written, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.command_line.environment import set_ray_defaults
    from pipeline.config.embed import Embed
    from pipeline.reporting import print_line
    from pipeline.workflows.inputs import check_inputs

    config = Command(prog="jobs/embed.py", about=str(__doc__), settings=Embed).read(arguments)
    set_ray_defaults()
    check_inputs(config)
    print_line(f"loading {config.checkpoint}")  # the imports take seconds, too
    from pipeline.workflows.embed import embed

    embed(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
