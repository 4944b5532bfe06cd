"""Find the tests of the second tier that the newest commits need: `python -m tests.touched`, for `.ci/run`.

Prints `all` if the commits touch many folders, or something that most jobs stand on; else the modules, which may be
none. The newest commits are those after CI_BASE, by default those of the day that ends with the newest one.
"""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALL = ("all",)
MANY = 4
"""Commits that touch more places of the table than this need all tests."""
DAY = 24 * 60 * 60

RAY = "tests/ray/test_{}.py".format
DOCUMENTS, PARITY, REHEARSALS = RAY("documents"), "tests/parity", "tests/rehearsals"
SECOND_TIER: dict[str, tuple[str, ...]] = {
    "pipeline/ablation": (RAY("ablate"), RAY("kept")),
    "pipeline/adapt": (RAY("adapt"),),
    "pipeline/audit": (RAY("pretrain"),),
    "pipeline/bench": ("tests/unit/benchmarks",),
    "pipeline/embed": (RAY("embed"), RAY("kept"), RAY("adapt"), RAY("serve")),
    "pipeline/evaluation": (DOCUMENTS, RAY("adapt"), PARITY),
    "pipeline/export": (DOCUMENTS, RAY("families"), PARITY, REHEARSALS),
    "pipeline/fine_tuned": (RAY("kept"), RAY("finetune"), RAY("predict"), RAY("serve"), PARITY, REHEARSALS),
    "pipeline/finetune": (RAY("finetune"), PARITY, REHEARSALS),
    "pipeline/grid": (RAY("kept"), RAY("ablate"), RAY("finetune"), REHEARSALS),
    "pipeline/predict": (RAY("embed"), RAY("kept"), RAY("predict"), RAY("serve"), PARITY, REHEARSALS),
    "pipeline/serve": (RAY("serve"), PARITY, REHEARSALS),
    "pipeline/show": (DOCUMENTS, RAY("finetune"), RAY("pretrain")),
    "pipeline/tables": (RAY("finetune"), RAY("predict"), RAY("adapt")),
    "pipeline/tasks": (RAY("finetune"), RAY("predict"), RAY("serve"), PARITY, REHEARSALS),
    "pipeline/README.md": (DOCUMENTS,),
    "pipeline/CHANGELOG.md": (),
    "cluster": (DOCUMENTS, "tests/unit/cluster_files"),
    "jobs": (DOCUMENTS, RAY("stream_page"), RAY("tour"), RAY("wheel")),
    "Makefile": (DOCUMENTS,),
    "README.md": (DOCUMENTS,),
    "CONTRIBUTING.md": (),
    "CITATION.cff": (),
    ".github": (),
    "LICENSE": (),
    "tests": (),  # its documents
}
"""Tests that a change of a folder or a loose file needs beside the first tier and the folder's own unit tests.

A folder or file that is not in the table needs all tests, because most jobs stand on it.
"""


def place_of(path: str) -> str:
    """Return the key of SECOND_TIER for a file: its folder in pipeline/, another folder at the top, or a loose file."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "pipeline" else parts[0]


def needed(files: Iterable[str]) -> tuple[str, ...]:
    """Return the modules of the second tier that a change of files needs, or ALL. A changed test needs itself."""
    places, modules = set[str](), set[str]()
    for file in files:
        name = file.rpartition("/")[2]
        if file.startswith("tests/") and name.startswith("test_"):
            modules |= {file} if (ROOT / file).exists() else set()
        elif file.startswith("tests/") and not name.endswith(".md"):
            return ALL  # it may be shared by many tests
        else:
            places.add(place_of(file))
    if len(places) > MANY or not places <= SECOND_TIER.keys():
        return ALL
    own = {place.replace("pipeline/", "tests/unit/") for place in places if place.startswith("pipeline/")}
    modules |= {folder for folder in own if (ROOT / folder).is_dir()}
    return tuple(sorted(modules.union(*(SECOND_TIER[place] for place in places))))


def changed_files() -> list[str] | None:
    """Return the files that the newest commits changed, or None if this is unknown: no git, or no older commits."""
    try:
        base = os.environ.get("CI_BASE")
        if not base:
            newest = int(_git("log", "-1", "--format=%ct"))
            base = _git("rev-list", "-1", f"--before={newest - DAY}", "HEAD")
        return _git("diff", "--name-only", "--no-renames", base, "HEAD").splitlines() if base else None
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    files = changed_files()
    print(*(ALL if files is None else needed(files)))
