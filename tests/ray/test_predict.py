"""jobs/predict.py: every row answered once and in order, and a killed job continued to the bytes of an undisturbed
one.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import ray
import torch

from jobs.predict import main
from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from tests.ray.undisturbed import run_parts

pytestmark = pytest.mark.usefixtures("local_ray", "one_thread")


@pytest.fixture(scope="module")
def checkpoint(tiny_vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A classifier whose weights are drawn at random."""
    folder = str(tmp_path_factory.mktemp("tuned") / "model")
    task = Task(name="moods", kind="classification", labels=("sad", "glad"), metrics=("accuracy",))
    model = Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32)
    module = OBJECTIVES[task.kind](model, tiny_vocabulary.size, 2, torch.Generator().manual_seed(3), "cls", None)
    save_tuned(
        folder,
        module,
        About(task=task, cutting=Truncation(maximum_length=16, stride=4), pooling="cls", thresholds={}, lineage={}),
        model,
        tiny_vocabulary,
    )
    return folder


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """Return a folder of two tables in which the text of every twentieth row is empty."""
    folder = tmp_path / "reviews"
    folder.mkdir()
    for file in range(2):
        lines = [
            {
                "number": 1_000 * file + row,
                "label": "mine",
                "text": f"kar lost kand {'mir ' * (row % 9)}" if row % 20 else " ",
            }
            for row in range(200)
        ]
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def options(checkpoint: str, reviews: Path) -> list[str]:
    asked = ["--checkpoint", checkpoint, "--input", str(reviews), "--rows-per-part", "25"]
    return [*asked, "--actors", "1", "--placement.threads", "1"]


def undisturbed(asked: list[str], output: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The output of a job in this process."""
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.predict.distributed.run_parts", run_parts)
        assert main([*asked, "--output", str(output)]) == 0
    return output.read_bytes()


def test_every_row_is_answered_once_and_in_order(
    checkpoint: str,
    reviews: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked, answers = options(checkpoint, reviews), tmp_path / "answers.parquet"
    assert main([*asked, "--output", str(answers)]) == 0
    last = "400 rows of 2 files, 20 of them empty and without an answer, computed in float32, in "
    assert last in capsys.readouterr().out
    assert not list(tmp_path.glob("*.parts"))
    said = json.loads((tmp_path / "answers.parquet.manifest.json").read_text())
    assert (said["precision"], said["rows"], said["empty"]) == ({"float32": 400}, 400, 20)
    assert checkpoint in said["model"]

    found = pq.read_table(answers).to_pylist()
    assert [row["number"] for row in found] == [*range(200), *range(1_000, 1_200)]
    assert all(
        (row["predicted_label"] in ("sad", "glad")) == (row["number"] % 20 > 0) and row["label"] == "mine"
        for row in found
    )
    assert answers.read_bytes() == undisturbed(asked, tmp_path / "undisturbed.parquet", monkeypatch)
    capsys.readouterr()
    assert main([*asked, "--output", str(answers)]) == 2
    assert "exists already: give --replace, or choose another --output" in capsys.readouterr().err


def kill_when(arguments: list[str], folder: Path) -> int:
    """Run the job, send it SIGKILL as soon as two parts are answered, and return the number of answered parts."""
    environment = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    with subprocess.Popen(
        [sys.executable, "jobs/predict.py", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    ) as job:
        until = time.monotonic() + 120
        while job.poll() is None and len(list(folder.glob("*-*.parquet"))) < 2 and time.monotonic() < until:
            time.sleep(0.005)
        job.kill()
    assert job.returncode == -signal.SIGKILL, job.stderr
    return len(list(folder.glob("*-*.parquet")))


@pytest.mark.second
def test_killed_and_resumed_it_writes_the_bytes_of_an_undisturbed_job(
    checkpoint: str,
    reviews: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked, killed = options(checkpoint, reviews), tmp_path / "killed.parquet"
    assert 2 <= kill_when([*asked, "--output", str(killed)], tmp_path / "killed.parquet.parts") < 16
    assert not killed.exists()
    assert main([*asked, "--output", str(killed), "--pair", "label"]) == 2
    assert (
        "killed.parquet.parts holds answers for settings text None, pair None, top 5, rows_per_part 25, not for "
        "settings text None, pair label" in capsys.readouterr().err
    )
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "killed.parquet.parts").glob("*-*.parquet")}
    assert main([*asked, "--output", str(killed)]) == 0
    assert f"{len(before)} parts are answered already" in capsys.readouterr().out
    assert killed.read_bytes() == undisturbed(asked, tmp_path / "undisturbed.parquet", monkeypatch)
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.second
def test_a_broken_line_is_one_line_of_error(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": 7}\n{"text": 3}\n')
    assert (
        main(
            [
                "--checkpoint",
                checkpoint,
                "--input",
                str(tmp_path / "a.jsonl"),
                "--output",
                str(tmp_path / "a.csv"),
                "--actors",
                "1",
            ]
        )
        == 2
    )
    assert (
        capsys.readouterr().err == f"error: {tmp_path}/a.jsonl, rows 1 to 2: column text holds 7, which is not a text\n"
    )
