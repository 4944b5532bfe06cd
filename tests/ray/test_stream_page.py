"""The example of jobs/STREAM.md, killed and continued with more workers."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.data import Preparation
from pipeline.corpus.prepare import prepare
from pipeline.reporting import no_op
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from tests.documents import ROOT
from tests.in_process import IN_PROCESS

pytestmark = pytest.mark.second

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


def test_the_page_s_example_goes_on_with_other_workers_at_the_same_losses(small_corpus: Path, tmp_path: Path) -> None:
    page = (ROOT / "jobs/STREAM.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(example.splitlines()) <= 70
    (tmp_path / "causal.py").write_text(example)
    settings = Preparation(window_characters=8_000, piece_characters=1_000, near_duplicates=None)
    prepare([str(small_corpus)], settings, str(tmp_path / "corpus"), no_op, IN_PROCESS)
    texts = (file.read_text() for file in sorted(small_corpus.iterdir()))
    (tmp_path / "vocabulary").mkdir()
    save_vocabulary(train_vocabulary(texts, size=200, lowercase=True), tmp_path / "vocabulary", 64)
    command = [sys.executable, "causal.py", "corpus", "vocabulary"]
    before = losses_printed([*command, "1"], tmp_path, until=18)
    after = losses_printed([*command, "2"], tmp_path)
    assert [*before] == [*range(1, 19)] and [*after] in ([*range(first, 21)] for first in (11, 16))
    assert {step: after[step] for step in before.keys() & after.keys()} == pytest.approx(
        {step: before[step] for step in before.keys() & after.keys()}, abs=2e-5
    )
