"""Rehearse an addition: put its new files and insertions into a copy of pipeline/, and run its script there.

A rehearsal is a folder here:

    pipeline/        new files, at the paths that they get in pipeline/
    insertions.toml  texts to insert: file, and the text after or before which they go, which occurs once in the file
    script.py        trains, exports, loads and answers with what was added; without Ray
"""

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NEW, INSERTIONS, SCRIPT = "pipeline", "insertions.toml", "script.py"
COMPILED = "__pycache__"
MOST_SECONDS = 250


@dataclass(frozen=True, kw_only=True)
class Insertion:
    """A text that is inserted into a file of pipeline/ directly after or before another."""

    file: str
    text: str
    after: str = ""
    before: str = ""

    def apply(self, pipeline: Path) -> None:
        """Insert the text into the file of a copy. Raises ValueError if its anchor does not occur exactly once."""
        path, anchor = pipeline / self.file, self.after or self.before
        content = path.read_text()
        if not anchor or (self.after and self.before) or content.count(anchor) != 1:
            raise ValueError(f"{self.file}: the anchor {anchor!r} occurs {content.count(anchor)} times instead of once")
        path.write_text(content.replace(anchor, self.after + self.text + self.before))


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """An addition to pipeline/."""

    name: str
    """Folder of the rehearsal."""
    adds: str
    """Its row in the table "How to add"."""
    touches: int
    """Number of files of pipeline/ that it touches, with new ones."""

    @property
    def folder(self) -> Path:
        """Folder with its files."""
        return HERE / self.name

    def insertions(self) -> list[Insertion]:
        """Return the insertions, in their order."""
        return [Insertion(**row) for row in tomllib.loads((self.folder / INSERTIONS).read_text())["insert"]]

    def apply(self, copy: Path, *, compiled: bool = True) -> Path:
        """Copy pipeline/ into a folder, add what the rehearsal adds, and return the copy of pipeline/.

        `compiled`: also copy compiled files, which stay valid, because times are copied. Raises ValueError for a new
        file that exists already, and for an anchor that does not occur exactly once.
        """
        pipeline, left_out = copy / "pipeline", shutil.ignore_patterns(*[] if compiled else [COMPILED])
        shutil.copytree(ROOT / "pipeline", pipeline, ignore=left_out)
        for file in sorted((self.folder / NEW).rglob("*.py")):
            target = pipeline / file.relative_to(self.folder / NEW)
            if target.exists():
                raise ValueError(f"{target.relative_to(pipeline)} exists already")
            shutil.copy(file, target)
        for insertion in self.insertions():
            insertion.apply(pipeline)
        return pipeline

    def run(self, copy: Path) -> None:
        """Run the script with a changed copy, in a folder beside it. Raises AssertionError with what a failure says."""
        scratch = copy / "scratch"
        scratch.mkdir()
        environment = os.environ | {"PYTHONPATH": f"{copy}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", str(self.folder / SCRIPT)]  # -P: the folder of new files is no package
        ended = subprocess.run(
            command, cwd=scratch, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS
        )
        assert ended.returncode == 0, f"{self.name}: {ended.stdout}\n{ended.stderr}"


def touched(pipeline: Path) -> list[str]:
    """Return the files of a copy that differ from those of pipeline/, or are new."""
    original, files = ROOT / "pipeline", [path.relative_to(pipeline) for path in pipeline.rglob("*") if path.is_file()]
    return sorted(
        str(file)
        for file in files
        if COMPILED not in file.parts
        and (not (original / file).exists() or (original / file).read_bytes() != (pipeline / file).read_bytes())
    )
