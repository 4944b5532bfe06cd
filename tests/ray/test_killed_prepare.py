"""jobs/prepare.py, killed in each of its stages, resumes to the corpus of an undisturbed run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import ray

from jobs.prepare import main
from pipeline.config.data import Preparation
from pipeline.corpus.prepared import load_corpus
from tests.books import quiet_prepare

pytestmark = pytest.mark.usefixtures("local_ray")

STAGES = ("parts/????????????????.json", "parts/*-overlap-*.parquet", "parts/*-?????.json")
"""Files that the first finished task of each stage leaves: for a batch of files, a range of hashes, a shard."""
SETTINGS = Preparation(window_characters=20_000, windows_per_shard=4, piece_characters=2_000)
FLAGS = (
    "--prepare.window-characters",
    "20000",
    "--prepare.windows-per-shard",
    "4",
    "--prepare.piece-characters",
    "2000",
)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Return a folder with texts for three batches of files, one of them twice."""
    folder = tmp_path / "texts"
    folder.mkdir()
    random = np.random.default_rng(3)
    words = np.array([a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in ("", "n", "r", "st", "lm")])
    for number in range(1_100):
        (folder / f"{number:04d}.txt").write_text("\n".join(" ".join(random.choice(words, 60)) + "." for _ in range(8)))
    (folder / "again.txt").write_text((folder / "0000.txt").read_text())
    return folder


def done(folder: Path) -> dict[Path, int]:
    """Return file -> modification time of what finished tasks have written."""
    return {path: path.stat().st_mtime_ns for stage in STAGES for path in folder.glob(stage)}


def kill_when(arguments: list[str], folder: Path, stage: str) -> None:
    """Run the job and send it SIGKILL as soon as a task of the stage has finished."""
    environment = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    with subprocess.Popen(
        [sys.executable, "jobs/prepare.py", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    ) as job:
        until = time.monotonic() + 120
        while job.poll() is None and not any(folder.glob(stage)) and time.monotonic() < until:
            time.sleep(0.01)
        job.kill()
    assert job.returncode == -signal.SIGKILL and any(folder.glob(stage)), job.stderr


def test_killed_in_any_stage_it_resumes_from_finished_tasks(texts: Path, tmp_path: Path) -> None:
    wanted = ["--corpus", str(texts), *FLAGS]
    folder = tmp_path / "killed"
    before: dict[Path, int] = {}
    for stage in STAGES:
        kill_when([*wanted, "--folder", str(folder)], folder, stage)
        assert not (folder / "manifest.json").exists()
        after = done(folder)
        assert before.items() <= after.items()
        before = after
    assert main([*wanted, "--folder", str(folder)]) == 0
    parts = {path: when for path, when in before.items() if "-" not in path.name}
    assert len(parts) == 3 and parts.items() <= done(folder).items()
    one, other = load_corpus(str(folder)), quiet_prepare([texts], tmp_path / "undisturbed", SETTINGS)
    assert (one.fingerprint, one.train, one.heldout, one.counts, one.dropped) == (
        other.fingerprint,
        other.train,
        other.heldout,
        other.counts,
        other.dropped,
    )
    assert one.dropped == {"duplicate": 2}  # its two pieces
    assert not list(folder.rglob("*.tmp"))
