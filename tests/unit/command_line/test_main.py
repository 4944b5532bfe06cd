"""The command bertstream of the environment, which `make` installs as an editable package."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.command_line.main import main
from pipeline.errors import JOBS


def test_the_usage_names_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    usage = capsys.readouterr().out
    assert [name for name in JOBS if f"\n  {name} " not in usage] == []


def test_the_installed_command_runs_a_job(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("bertstream")
    done = subprocess.run([command, "adapt", "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "usage: bertstream adapt" in done.stdout, done.stderr
