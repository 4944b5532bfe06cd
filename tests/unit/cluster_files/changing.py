"""A shipped file of cluster/ with one thing changed, and what the check prints of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import check

ROOT = Path(__file__).parents[3]
Change = Callable[[dict[str, Any]], object]


def lines(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the check prints of a file with problems, without the file's name."""
    assert check.main([str(path)]) == 2
    return [line.removeprefix(f"{path}: ") for line in capsys.readouterr().out.splitlines()]


def changed(name: str, change: Change, folder: Path) -> Path:
    """Write a file of cluster/ to a folder with one change, without YAML's anchors: what they name is one object."""
    document = yaml.safe_load((ROOT / "cluster" / name).read_text())
    document = yaml.safe_load(yaml.dump(document, Dumper=NoAliases))
    change(document)
    path = folder / Path(name).name
    path.write_text(yaml.safe_dump(document))
    return path


class NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
