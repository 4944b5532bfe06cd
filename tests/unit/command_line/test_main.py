"""The command bertstream of the environment, which `make` installs as an editable package."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.command_line.main import main
from pipeline.errors import JOBS

ROOT = Path(__file__).parents[3]
IN_A_CHECKOUT = """import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in finder.__module__]
from pipeline.command_line.main import main
sys.exit(main(["adapt", "--help"]))"""


def test_the_usage_names_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    usage = capsys.readouterr().out
    assert [name for name in JOBS if f"\n  {name} " not in usage] == []


def test_the_installed_command_runs_a_job(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("bertstream")
    done = subprocess.run([command, "adapt", "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "usage: bertstream adapt" in done.stdout, done.stderr


def test_it_runs_a_job_of_a_checkout_that_hides_the_installed_package() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_CHECKOUT], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Adapt an encoder" in done.stdout, done.stderr
