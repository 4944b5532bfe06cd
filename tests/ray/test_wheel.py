"""The wheel, installed where there is no clone."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.documents import commands

pytestmark = pytest.mark.second
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "pipeline", "jobs"):  # building writes beside what it reads
        subprocess.run(["cp", "-r", ROOT / name, source], check=True)
    build = [
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--quiet",
        "--wheel-dir",
        str(folder),
        str(source),
    ]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    (built,) = folder.glob("bertstream-*.whl")
    return built


def test_it_holds_every_package_and_the_data_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in ROOT.glob("pipeline/**/*.py")}
    modules |= {f"pipeline/jobs/{path.name}" for path in ROOT.glob("jobs/*.py")}
    assert modules <= names and {"pipeline/py.typed", "pipeline/prices.toml", "pipeline/CHANGELOG.md"} <= names
    assert {f"pipeline/{path.relative_to(ROOT)}" for path in ROOT.glob("jobs/**/*.md")} <= names
    tops = {name.split("/")[0] for name in names}
    assert sorted(top for top in tops if not top.endswith(".dist-info")) == ["pipeline"]


def test_the_command_of_the_readme_prepares_and_trains_where_there_is_no_clone(wheel: Path, tmp_path: Path) -> None:
    site, here = tmp_path / "site", tmp_path / "here"
    (here / "books").mkdir(parents=True)
    install = ["install", "--no-deps", "--no-index", "--quiet", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    for name in ("a", "b"):
        words = " ".join(f"the {name}{number} sat on mat {number % 7}." for number in range(400))
        (here / "books" / f"{name}.txt").write_text(f"{words}\n")

    def bertstream(*words: str, code: int = 0) -> str:
        environment = os.environ | {"PYTHONPATH": str(site)}
        command = [sys.executable, site / "bin" / "bertstream", *words]
        done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    assert "usage: bertstream JOB" in bertstream("--help") and "pretrain" in bertstream("--help")
    assert bertstream("pretran", code=2).endswith("did you mean pretrain?\n")
    assert "bertstream prepare --folder" in bertstream("prepare", "--help")
    assert "price" in bertstream("pretrain", "--plan").lower()
    settings = tomllib.loads(bertstream("pretrain", "--show"))
    assert settings["preset"] == "encoder-xs"
    small = [
        *("--prepare.window-characters", "4000", "--prepare.piece-characters", "1000"),
        *("--prepare.near-duplicates", "None", "--prepare.heldout-share", "0", "--vocabulary.size", "300"),
        *("--model.layers", "1", "--model.width", "32", "--model.heads", "1", "--model.feed-forward", "32"),
        *("--sampling.maximum-length", "32", "--batch.rows-per-step", "8", "--batch.rows-per-slot", "8"),
        *("--steps", "10", "--schedule.warmup-steps", "2", "--name", "ten"),
    ]
    (command,) = (
        written
        for written in commands()
        if (written.page, written.program, written.job) == ("README.md", "bertstream", "pretrain")
    )
    out = bertstream(*command.words[1:], *small)
    assert "is ready: 2 documents" in out and re.search(r"^  trained +10 steps", out, re.M)
    assert (here / "output" / "runs" / "ten" / "export" / "model.safetensors").is_file()
