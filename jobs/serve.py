"""Serve a model over HTTP: vectors, labels, scores of pairs, tags, answers, or words at [MASK].

    python jobs/serve.py --checkpoint output/runs/NAME/export
    python jobs/serve.py --checkpoint hf://OWNER/NAME --replicas 2 --port 8080

The routes and bodies are those of Text Embeddings Inference and of OpenAI's embeddings; jobs/SERVING.md lists them.
"""

import sys
from collections.abc import Sequence

from pipeline.command_line.exit_codes import job_main


@job_main(stopped="stopped; no request is answered any more")
def main(arguments: Sequence[str]) -> None:
    """Parse and serve; exit with 130 or 143 when stopped, 2 for errors that the user can fix."""
    from pipeline.command_line.command import Command
    from pipeline.command_line.environment import set_ray_defaults, set_server_defaults
    from pipeline.config.serve import Serve, require_serve
    from pipeline.reporting import print_line

    config = Command(prog="jobs/serve.py", about=str(__doc__), settings=Serve).read(arguments)
    set_ray_defaults()
    set_server_defaults()
    require_serve(config)
    if config.ray_setting:
        print_line(f"served by Ray Serve, because {config.ray_setting}; loading Ray Serve and torch")
    else:
        print_line("served by this process alone, without Ray; loading torch")  # the imports below take seconds
    from pipeline.workflows.serve import serve

    serve(config, print_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
