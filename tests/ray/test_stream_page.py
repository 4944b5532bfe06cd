"""The example of jobs/STREAM.md, killed and continued with more workers, and its MLflow run."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from pipeline.config.data import Preparation
from pipeline.corpus.prepare import prepare
from pipeline.files.locations import sqlite_uri
from pipeline.reporting import no_op
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.tracking.runs import experiments
from tests.documents import ROOT
from tests.in_process import IN_PROCESS

pytestmark = pytest.mark.long  # its parts: tests/unit/corpus/test_token_batches.py, tests/unit/tracking/test_trainer.py

STEP_LOSS = re.compile(r"step (\d+) loss (\S+)")


def losses_printed(command: list[str], folder: Path, until: int | None = None) -> dict[int, float]:
    """Run a program on a Ray of its own and return the losses that it prints, by step; SIGKILL after step `until`."""
    environment = {**os.environ, "RAY_ADDRESS": "local", "PYTHONUNBUFFERED": "1"}
    losses, lines = {}, []
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            if found := STEP_LOSS.search(line):
                losses[int(found[1])] = float(found[2])
            if until in losses:
                running.kill()
    assert running.returncode == (0 if until is None else -signal.SIGKILL), "".join(lines[-40:])
    return losses


@pytest.mark.timeout(400)  # three programs that load torch, Ray and MLflow
def test_the_page_s_example_goes_on_with_other_workers_at_the_same_losses(small_corpus: Path, tmp_path: Path) -> None:
    page = (ROOT / "jobs/STREAM.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(example.splitlines()) <= 70
    assert example.count("steps=20") == 1  # more, so that the program is killed before its end
    (tmp_path / "causal.py").write_text(example.replace("steps=20", "steps=60"))
    settings = Preparation(window_characters=8_000, piece_characters=1_000, near_duplicates=None)
    prepare([str(small_corpus)], settings, str(tmp_path / "corpus"), no_op, IN_PROCESS)
    texts = (file.read_text() for file in sorted(small_corpus.iterdir()))
    (tmp_path / "vocabulary").mkdir()
    save_vocabulary(train_vocabulary(texts, size=200, lowercase=True), tmp_path / "vocabulary", 64)
    command = [sys.executable, "../causal.py", "../corpus", "../vocabulary"]
    for folder in ("whole", "killed"):
        (tmp_path / folder).mkdir()
    whole = losses_printed([*command, "1"], tmp_path / "whole")
    before = losses_printed([*command, "1"], tmp_path / "killed", until=8)
    after = losses_printed([*command, "2"], tmp_path / "killed")
    first = min(after)
    assert [*whole] == [*range(1, 61)] and first > 5 and first % 5 == 1 and [*after] == [*range(first, 61)]
    assert before == pytest.approx({step: whole[step] for step in before}, abs=2e-5)
    assert after == pytest.approx({step: whole[step] for step in after}, abs=2e-5)

    uri = sqlite_uri(str(tmp_path / "killed/output/mlflow.db"))
    client = MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([*experiments(uri)])
    points = sorted(client.get_metric_history(run.info.run_id, "loss"), key=lambda point: point.step)
    assert run.info.status == "FINISHED" and [*run.data.metrics] == ["loss"]
    assert [point.step for point in points] == [*range(5, 61, 5)]  # the run's, over both starts, and each once
    assert [point.value for point in points] == pytest.approx([whole[point.step] for point in points], abs=2e-5)
