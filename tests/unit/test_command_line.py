"""The command bertstream of the environment, which `make` installs as an editable package."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.called import JOBS


@pytest.mark.parametrize(("words", "said"), [(["--help"], JOBS), (["adapt", "--help"], ["usage: bertstream adapt"])])
def test_the_installed_command_finds_the_jobs(words: list[str], said: list[str], tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("bertstream")
    done = subprocess.run([command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and all(name in done.stdout for name in said), done.stderr
