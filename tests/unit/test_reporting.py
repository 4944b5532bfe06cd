"""Lines of a job that waits for its first result, and durations as people read them."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline import reporting
from pipeline.reporting import Waiting, beating, duration, estimate, from_here


def test_pauses_between_lines_grow_until_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [50.0], []
    monkeypatch.setattr(reporting, "time", SimpleNamespace(monotonic=lambda: now[0]))
    waiting = Waiting(said.append, "starting the workers")
    for _ in range(160):
        now[0] += 1.0
        waiting.beat()
    waiting.end("step 1")
    now[0] += 1_000.0
    waiting.beat()
    # pauses of 5, 10, 20, 40 and then 60 seconds
    assert said == [
        *(f"starting the workers, {after} so far" for after in ("5s", "15s", "35s", "1m15s", "2m15s")),
        "step 1",
    ]


def test_the_heart_beats_within_the_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "BEAT_SECONDS", 0.01)
    beats, twice = [], threading.Event()

    def beat() -> None:
        beats.append(1)
        if len(beats) > 1:
            twice.set()

    with beating(beat):
        assert twice.wait(10)
    count = len(beats)
    assert not threading.Event().wait(0.05) and len(beats) == count


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0s"),
        (0.4, "0s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (200, "3m20s"),
        (3599.7, "1h00m"),
        (7500, "2h05m"),
        (360_000, "100h00m"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 s"),
        (89, "89 s"),
        (90, "2 minutes"),
        (3600, "60 minutes"),
        (5400, "1.5 hours"),
        (4_442_400, "1,234.0 hours"),
    ],
)
def test_estimates_have_one_unit(seconds: float, said: str) -> None:
    assert estimate(seconds) == said


def test_a_path_is_relative_to_a_folder_that_its_reader_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_ray = tmp_path / "_ray_pkg_1a2b3c"
    of_ray.mkdir()
    monkeypatch.chdir(tmp_path)
    assert from_here(f"{tmp_path}/output/vectors") == "output/vectors" and from_here("s3://b/output") == "s3://b/output"
    assert from_here("/elsewhere/python", "python") == "python"
    monkeypatch.chdir(of_ray)
    assert from_here(f"{of_ray}/output") == f"{of_ray}/output"
