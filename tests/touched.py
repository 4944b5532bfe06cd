"""Which tests of the second tier the newest commits need: `python -m tests.touched` for continuous integration.

Prints `all` if a change touches many folders, or something that the table does not know; else the modules, which may be
none. The newest commits are those after CI_BASE, or of the day up to the newest one.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
MANY_FOLDERS = 4
"""A change of more folders than this needs all tests."""
NEWEST_SECONDS = 24 * 60 * 60
ALL = ("all",)

RAY = "tests/ray/"
SECOND_TIER: dict[str, tuple[str, ...]] = {}
"""Modules whose tests of the second tier hold what is in a folder, or in a file that lies loose."""
"""Nothing in the second tier depends on these; `make test` has their tests."""


def folder_of(path: str) -> str:
    """Return the name in the table for a changed file: its folder in pipeline/, else the file itself or its folder."""
    parts = path.split("/")
    if parts[0] == "pipeline":
        return "/".join(parts[:2])
    return path if len(parts) == 1 else parts[0]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def changed_files() -> list[str] | None:
    """Return the files that the newest commits changed, or None if older commits are not there to compare with."""
    base = os.environ.get("CI_BASE")
    if not base:
        newest = int(git("log", "-1", "--format=%ct"))
        base = git("rev-list", "-1", f"--before={newest - NEWEST_SECONDS}", "HEAD")
    return git("diff", "--name-only", "--no-renames", base, "HEAD").splitlines() if base else None


def needed(files: Iterable[str]) -> tuple[str, ...]:
    """Return the modules of the second tier that a change of files needs, or ALL."""


if __name__ == "__main__":
    files = changed_files()
    print(" ".join(ALL if files is None else needed(files)))
    sys.exit(0)
