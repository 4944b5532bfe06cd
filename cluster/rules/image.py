"""Rules for the Dockerfile and its build context."""

from collections.abc import Iterator
from pathlib import Path

from cluster.rules.problems import Problem
from cluster.rules.software import RAY_IMAGE, pip_problems


def dockerfile(text: str, path: Path) -> Iterator[Problem]:
    """Yield differences from the pinned Ray and versions, a final root user, and a build context beyond code."""
    lines = enumerate(text.replace("\\\n", " ").splitlines(), 1)
    split = [(number, line.split(maxsplit=1)) for number, line in lines if not line.startswith("#")]
    words = [(number, *parts) for number, parts in split if len(parts) == 2]
    bases = [value for _, word, value in words if word == "FROM"]
    if bases != [RAY_IMAGE]:
        yield "FROM", f"{', '.join(bases) or 'missing'}; {RAY_IMAGE}, the Ray of cluster/requirements.txt"
    if (user := next((value for _, word, value in reversed(words) if word == "USER"), "ray")) in ("root", "0"):
        yield "USER", f"{user} at the end; ray"
    for number, word, value in words:
        for message in pip_problems(value) if word == "RUN" else ():
            yield f"line {number}", message
    ignored = path.with_name("Dockerfile.dockerignore")
    if not ignored.exists() or "*" not in ignored.read_text().splitlines():
        yield ignored.name, "must begin with * and name what the image may see: runs, data and secrets may not"
