"""The choice between this process and Ray, and jobs/predict.py here: all rows in order, stopped and continued."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.predict import main
from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Predict
from pipeline.predict.inputs import RowFile
from pipeline.predict.running import MOST_BYTES, reason_for_ray
from pipeline.text.vocabulary import Vocabulary
from tests.answered import change_times, part_bytes, stop_after, write_classifier, write_reviews

SMALL = RowFile(location="/a.csv", form="table", bytes=1_000, stamp="1")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No address, and a folder of the test's own for the address file of a head."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def checkpoint(tiny_vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_classifier(tmp_path_factory.mktemp("tuned") / "model", tiny_vocabulary)


def config(**settings) -> Predict:
    return Predict(checkpoint="/m", input="/a.csv", output="/b.csv", **settings)


@pytest.mark.parametrize(
    ("settings", "file", "rows", "reason"),
    [
        ({}, SMALL, 4_000, None),
        ({}, SMALL, 4_001, "4,001 rows, more than 4,000"),
        ({}, SMALL, None, None),  # at a URL, or a broken file, which the reader reports
        ({}, replace(SMALL, bytes=MOST_BYTES), 10, None),
        ({}, replace(SMALL, bytes=12_345_678), None, "12.3 MB, more than 4 MB"),
        ({}, replace(SMALL, bytes=-1), None, "the size of the input is not known"),
        ({"actors": 1, "gpus": 0.0, "cpus": 4.0}, SMALL, 10, None),
        ({"actors": 2}, SMALL, 10, "actors is 2"),
        ({"gpus": 0.5}, SMALL, 10, "gpus is 0.5"),
        ({"placement": ModelPlacement(address="local")}, SMALL, 10, "placement.address is local"),
        (
            {"placement": ModelPlacement(autoscaled=True, device="cpu"), "actors": 1},
            SMALL,
            10,
            "placement.autoscaled is set",
        ),
    ],
)
def test_ray_is_used_for_large_inputs_and_where_settings_ask_for_it(
    settings: dict, file: RowFile, rows: int | None, reason: str | None
) -> None:
    assert reason_for_ray(config(**settings), [file], rows) == reason


def test_ray_is_used_where_an_address_or_a_head_is_at_hand(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nowhere / "ray").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (nowhere / "ray" / "ray_current_cluster").write_text(address)
        assert reason_for_ray(config(), [SMALL], 10) == f"a head runs on this machine, at {address}"
    assert reason_for_ray(config(), [SMALL], 10) is None  # it has ended
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert reason_for_ray(config(), [SMALL], 10) == "RAY_ADDRESS is 10.0.0.1:6379"


def options(checkpoint: str, reviews: Path, output: Path) -> list[str]:
    asked = ["--checkpoint", checkpoint, "--input", str(reviews), "--output", str(output)]
    return [*asked, "--rows-per-part", "25", "--placement.threads", "1"]


def test_every_row_is_answered_once_and_in_order(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reviews, answers = write_reviews(tmp_path / "reviews"), tmp_path / "answers.parquet"
    assert main(options(checkpoint, reviews, answers)) == 0
    said = capsys.readouterr().out
    assert "\nwithout Ray: 400 rows, at most 4,000\n" in said
    assert "400 rows of 2 files, 20 of them empty and without an answer, computed in float32, in " in said
    assert not list(tmp_path.glob("*.parts"))
    manifest = json.loads((tmp_path / "answers.parquet.manifest.json").read_text())
    assert (manifest["precision"], manifest["rows"], manifest["empty"]) == ({"float32": 400}, 400, 20)
    assert checkpoint in manifest["model"]

    found = pq.read_table(answers).to_pylist()
    assert [row["number"] for row in found] == [*range(200), *range(1_000, 1_200)]
    assert all(
        (row["predicted_label"] in ("sad", "glad")) == (row["number"] % 20 > 0) and row["label"] == "mine"
        for row in found
    )
    assert main(options(checkpoint, reviews, answers)) == 2
    assert "exists already: give --replace, or choose another --output" in capsys.readouterr().err


def test_stopped_and_continued_it_writes_the_bytes_of_an_undisturbed_job(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reviews, stopped = write_reviews(tmp_path / "reviews"), tmp_path / "stopped.parquet"
    with monkeypatch.context() as patch:
        stop_after(patch, 9)
        assert main(options(checkpoint, reviews, stopped)) == 130
    assert "stopped; the same command continues with the rows that have no answer yet" in capsys.readouterr().err
    parts = tmp_path / "stopped.parquet.parts"
    before, written = change_times(parts), part_bytes(parts)
    assert len(before) == 9 and not stopped.exists()
    assert main([*options(checkpoint, reviews, stopped), "--pair", "label"]) == 2
    assert (
        "stopped.parquet.parts holds answers for settings text None, pair None, top 5, rows_per_part 25, not for "
        "settings text None, pair label" in capsys.readouterr().err
    )
    with monkeypatch.context() as patch:
        stop_after(patch, 12)
        assert main(options(checkpoint, reviews, stopped)) == 130
    assert {name: change_times(parts)[name] for name in before} == before
    assert {name: part_bytes(parts)[name] for name in before} == written
    assert main(options(checkpoint, reviews, stopped)) == 0
    said = capsys.readouterr().out
    assert "9 parts are answered already" in said and "12 parts are answered already" in said
    assert main(options(checkpoint, reviews, tmp_path / "undisturbed.parquet")) == 0
    assert stopped.read_bytes() == (tmp_path / "undisturbed.parquet").read_bytes()
    assert not list(tmp_path.glob("*.parts"))


def test_a_broken_line_is_one_line_of_error(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": 7}\n{"text": 3}\n')
    assert main(options(checkpoint, tmp_path / "a.jsonl", tmp_path / "a.csv")) == 2
    assert (
        capsys.readouterr().err == f"error: {tmp_path}/a.jsonl, rows 1 to 2: column text holds 7, which is not a text\n"
    )


def test_a_later_row_without_the_column_is_one_line_of_error(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n{"review": "bad"}\n')
    assert main([*options(checkpoint, tmp_path / "a.jsonl", tmp_path / "a.csv"), "--rows-per-part", "1"]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/a.jsonl, rows 2 to 2: input has no column text: its columns are review; name the right "
        "one with --text\n"
    )


def test_sigterm_ends_it_with_its_code_and_leaves_the_parts(checkpoint: str, tmp_path: Path) -> None:
    """It also shows that the command ends soon, because Ray's start would take longer than the wait for two parts."""
    asked = options(checkpoint, write_reviews(tmp_path / "reviews"), tmp_path / "a.parquet")
    parts, command = tmp_path / "a.parquet.parts", [sys.executable, "jobs/predict.py", *asked, "--rows-per-part", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ) as job:
        until = time.monotonic() + 60
        while job.poll() is None and len(part_bytes(parts)) < 2 and time.monotonic() < until:
            time.sleep(0.005)
        job.send_signal(signal.SIGTERM)
        said, errors = job.communicate()
    assert job.returncode == 143, (said, errors)
    assert errors == "stopped; the same command continues with the rows that have no answer yet\n"
    assert "without Ray: 400 rows" in said and 2 <= len(part_bytes(parts)) < 400
