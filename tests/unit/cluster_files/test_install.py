"""The files that a node or an image gets are enough to install the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.cluster_files.changing import ROOT

MOUNT = "/mnt/bertstream/"
METADATA = (
    "from setuptools import build_meta as b; b.get_requires_for_build_wheel(); b.prepare_metadata_for_build_wheel('.')"
)


def mounted(name: str) -> dict[str, str]:
    """Return {path below the project on a node: path in the project} of a launcher's file."""
    mounts = yaml.safe_load((ROOT / "cluster" / name).read_text())["file_mounts"]
    return {remote.removeprefix(MOUNT): local for remote, local in mounts.items() if remote.startswith(MOUNT)}


def copied(name: str) -> dict[str, str]:
    """Return the same of the files that a Dockerfile copies before it installs the package."""
    before = (ROOT / "cluster" / name).read_text().partition("'.[")[0]
    lines = [line.split()[2:-1] for line in before.splitlines() if line.startswith("COPY ")]
    return {path.removeprefix("cluster/"): path for paths in lines for path in paths}


@pytest.mark.parametrize(
    "files", [mounted("aws.yaml"), mounted("gcp.yaml"), copied("Dockerfile")], ids=["aws", "gcp", "image"]
)
def test_the_files_on_a_node_are_enough_to_install_the_package(files: dict[str, str], tmp_path: Path) -> None:
    for remote, local in files.items():
        (target := tmp_path / remote).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / local).is_dir():
            shutil.copytree(ROOT / local, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / local, target)
    done = subprocess.run([sys.executable, "-c", METADATA], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("bertstream-*.dist-info/METADATA"))


@pytest.mark.parametrize("name", ["aws.yaml", "gcp.yaml"])
def test_a_module_that_an_upgrade_deletes_is_not_installed_again(name: str, tmp_path: Path) -> None:
    commands = yaml.safe_load((ROOT / "cluster" / name).read_text())["setup_commands"]
    copy = commands[-1].partition(" && pip install ")[0].replace("/mnt/", f"{tmp_path}/mnt/")
    (tmp_path / MOUNT[1:]).mkdir(parents=True)
    deleted = tmp_path / "bertstream/build/lib/pipeline/deleted.py"
    deleted.parent.mkdir(parents=True)
    deleted.touch()
    subprocess.run(["bash", "-c", copy], env=os.environ | {"HOME": str(tmp_path)}, check=True)
    assert (tmp_path / "bertstream").is_dir() and not deleted.exists()
