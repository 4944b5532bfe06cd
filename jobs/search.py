"""Search the vectors of jobs/embed.py: find the texts that are most similar to queries.

    python jobs/search.py --vectors output/vectors/mine --queries "how do bridges carry their weight?"
    python jobs/search.py --vectors output/vectors/mine --queries queries.jsonl --top 100 --output found.jsonl

The model that made the vectors embeds the queries.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; nothing was written")
def main(arguments: Sequence[str]) -> None:
    """Parse and search; exit with 0 when the results are printed or written, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.config.embed import Search
    from pipeline.reporting import print_line

    config = Command(prog="jobs/search.py", about=str(__doc__), settings=Search).read(arguments)
    from pipeline.workflows.search import search

    search(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
