"""A copy of the kept folders in which everything is where the files say, as on the machine that wrote them."""

import hashlib
import importlib.metadata
import json
import re
import shutil
from pathlib import Path
from typing import Any

from tests.kept.answers import EXPECTED

FOLDERS = Path(__file__).with_name("folders")
WRITTEN = re.compile(r'/kept(?=[/"])')
"""The folder in which they were made."""
INPUT_DIGEST = re.compile(r"( bytes, )\w{12}\)")
LOCATED = ("run.json", "about.json", "mlflow.json", "MLmodel", "vectors/manifest.json", "summary.json")
"""Ends of the names of files that hold locations and that no manifest has a digest of."""
LIBRARIES = ("numpy", "sentencex", "tokenizers")


def copy_folders(target: Path) -> dict[str, Any]:
    """Copy the kept folders to a new folder, and return the answers that they had when they were made.

    Three things are written anew in the copies: locations, digests of the times of input files, and the versions of
    other people's libraries, which a run compares because another version may give other rows.
    """
    shutil.copytree(FOLDERS, target)
    for path in [path for path in target.rglob("*") if path.as_posix().endswith(LOCATED)]:
        text = WRITTEN.sub(str(target), path.read_text())
        path.write_text(INPUT_DIGEST.sub(rf"\g<1>{digest_of(target / 'texts')})", text))
        if path.name == "run.json":
            recorded = json.loads(path.read_text())
            recorded["identity"] |= {f"version.{name}": importlib.metadata.version(name) for name in LIBRARIES}
            path.write_text(json.dumps(recorded))
    return json.loads((target / EXPECTED).read_text())


def digest_of(folder: Path) -> str:
    """Return the digest of input tables, as it was when the folders were made."""
    facts = [
        {"location": str(path), "form": "table", "bytes": path.stat().st_size, "stamp": str(path.stat().st_mtime_ns)}
        for path in sorted(folder.iterdir())
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
