"""The memory bench of embed: its texts and model, the peak of a tree of processes, and the table."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from pipeline import api
from tests.benchmarks import embed
from tests.benchmarks.__main__ import main
from tests.benchmarks.embed import MeasuredJob, save_random_model, table, verdict, write_texts

MEGABYTE = 1_000_000
CHILD = f"import time; held = bytearray({100 * MEGABYTE}); held[::1000] = bytes([1]) * len(held[::1000]); time.sleep(2)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_texts_have_ids_over_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "TEXTS_PER_FILE", 40)
    write_texts(100, tmp_path / "texts")
    files = sorted((tmp_path / "texts").iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [40, 40, 20]
    rows = pq.read_table(tmp_path / "texts").to_pydict()
    assert rows["id"] == [f"{number:09}" for number in range(100)] and len(set(rows["text"])) > 90


def test_the_model_with_random_weights_embeds_the_texts(tmp_path: Path) -> None:
    write_texts(3, tmp_path / "texts")
    texts = pq.read_table(tmp_path / "texts")["text"].to_pylist()
    model = api.load(save_random_model(str(tmp_path / "model")), "cpu")
    vectors = model.embed(texts)
    assert vectors.shape == (3, 32) and np.linalg.norm(vectors[0] - vectors[1]) > 1e-3
    assert "[UNK]" not in model.tokenize(texts[0]).pieces


@pytest.mark.second
@pytest.mark.skipif(not hasattr(psutil.Process().memory_full_info(), "pss"), reason="needs Linux")
def test_the_peak_counts_the_memory_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "SECONDS_BETWEEN", 0.05)
    process = subprocess.Popen([sys.executable, "-c", PARENT])
    peak = max(embed.tree_sizes(process.pid))
    assert process.wait() == 0
    assert 100 * MEGABYTE < peak < 160 * MEGABYTE


def test_a_table_has_ratios_to_the_first_job() -> None:
    jobs = [
        MeasuredJob(texts=1_000, peak=2_000 * MEGABYTE, seconds=9.6),
        MeasuredJob(texts=9_000, peak=2_100 * MEGABYTE, seconds=90),
    ]
    assert [line.split() for line in table(jobs)[1:]] == [
        ["1,000", "2,000", "1.000", "10"],
        ["9,000", "2,100", "1.050", "90"],
    ]


@pytest.mark.parametrize(("peak", "code"), [(1_000, 0), (1_090, 0), (1_110, 1)])
def test_a_peak_that_grows_by_more_than_a_tenth_fails(peak: int, code: int) -> None:
    first = MeasuredJob(texts=1_000, peak=1_000 * MEGABYTE, seconds=9)
    assert verdict([first, MeasuredJob(texts=9_000, peak=peak * MEGABYTE, seconds=90)]) == code


def test_settings_below_their_least_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for option, message in (("--texts", "texts (0) must be at least 1"), ("--times", "times (0) must be at least 2")):
        assert main(["embed", option, "0"]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.long
def test_the_job_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", "--texts", "200", "--times", "2"]) in (0, 1)  # so few texts say nothing about growth
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["200", "400"]


@pytest.mark.second
def test_a_job_that_fails_ends_the_bench_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        embed.PipelineError, match=r"^jobs/embed.py of 5 texts ended with exit code 2: .*none does not exist"
    ):
        embed.measure([5], "/none", str(tmp_path))
