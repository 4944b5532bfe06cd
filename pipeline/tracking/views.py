"""Print the addresses of pages of an MLflow server here: `python -m pipeline.tracking.views TRACKING_URI PORT`."""

import sys
from collections.abc import Sequence

from pipeline.tracking.pages import TRAINING_VIEW
from pipeline.tracking.runs import experiments


def pages(uri: str, port: str) -> list[str]:
    """Return one line per experiment with the address of its runs' page.

    If there are no experiments, return one line about the server.
    """
    server = f"http://127.0.0.1:{port}"
    names = experiments(uri)
    width = max(map(len, names.values()), default=0)
    lines = [
        f"  {name:<{width}}  {server}/#/experiments/{number}/runs?{TRAINING_VIEW}" for number, name in names.items()
    ]
    return lines or [f"  {server}  (no run is tracked in {uri} yet)"]


def main(arguments: Sequence[str]) -> None:
    uri, port = arguments
    print("\n".join(["MLflow will be ready in some seconds (Ctrl-C stops it):", *pages(uri, port)]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
