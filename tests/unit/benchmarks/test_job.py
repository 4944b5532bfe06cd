import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from pipeline.bench.train import slots
from pipeline.errors import PipelineError
from tests.benchmarks import job, plain
from tests.benchmarks.job import JobSide, Rates, Turns, by_turn, running, take_turns
from tests.benchmarks.plain import Interval

LOGS = (
    "import json, time\nwhile True:\n    begun = time.time(); time.sleep(0.05)\n    "
    "print(json.dumps(dict(step=1, end=time.time(), seconds=time.time() - begun, tokens_per_second={})), flush=True)"
)


def interval(begun: float, end: float, rate: float) -> Interval:
    return Interval(step=1, end=end, seconds=end - begun, tokens_per_second=rate)


def test_only_intervals_within_a_turn_count() -> None:
    turns = Turns(under_ray=((0, 10), (20, 30), (40, 50)), alone=((10, 20), (30, 40), (50, 60)))
    alone = [
        interval(11, 14, 100),
        interval(14, 18, 200),
        interval(18, 32, 1),
        interval(33, 36, 300),
    ]  # the third stood still for ten seconds
    under_ray = [interval(1, 5, 90), interval(21, 25, 150), interval(25, 29, 250), interval(41, 44, 500)]
    assert by_turn(turns, alone, under_ray) == [Rates(alone=150, under_ray=90), Rates(alone=300, under_ray=200)]


def test_slots_go_over_the_ends_of_tables() -> None:
    tables = [pa.table({"row": list(rows)}) for rows in (range(3), range(3, 4), range(4, 11))]
    assert [slot["row"].to_pylist() for slot in slots(iter(tables), 4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]


def test_the_loop_alone_trains_a_run_again(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    assert plain.main([str(tiny_run), "4", "off", "2", "1"]) == 0
    elapsed = time.monotonic() - begun
    found = [Interval(**json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    assert [one.step for one in found] == [2, 4] and all(one.tokens_per_second > 0 for one in found)
    assert found[0].end < found[1].end and 0 < found[0].seconds + found[1].seconds < elapsed


@pytest.mark.second
def test_the_sides_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "TURN", 1.0)
    files = [tmp_path / "alone", tmp_path / "ray"]
    with (
        files[0].open("w") as first,
        files[1].open("w") as second,
        running([sys.executable, "-c", LOGS.format(7)], first) as one,
        running([sys.executable, "-c", LOGS.format(9)], second) as other,
    ):
        alone, ray = (
            JobSide(process, lambda file=file: [Interval(**json.loads(line)) for line in file.read_text().splitlines()])
            for process, file in ((one, files[0]), (other, files[1]))
        )
        ray.wait(2)
        alone.wait(2)
        monkeypatch.setattr(other, "poll", iter([None, None, 0]).__next__)  # done after two turns of each
        turns = take_turns(alone, ray)
        until = time.monotonic() + 10  # a signal is not there at once
        while psutil.Process(one.pid).status() != psutil.STATUS_STOPPED and time.monotonic() < until:
            time.sleep(0.01)
        assert psutil.Process(one.pid).status() == psutil.STATUS_STOPPED != psutil.Process(other.pid).status()
        assert by_turn(turns, alone.intervals(), ray.intervals()) == [Rates(alone=7, under_ray=9)] * 2
        for side, others in ((alone, turns.under_ray), (ray, turns.alone)):  # whoever stands logs nothing
            assert not [one for one in side.intervals() for begun, end in others if begun < one.end < end]
    assert one.returncode and other.returncode


def test_a_side_that_ends_early_is_an_error() -> None:
    with running([sys.executable, "-c", "raise SystemExit(3)"], subprocess.DEVNULL) as process:
        with pytest.raises(PipelineError, match=r"ended with exit code 3 before log interval 1$"):
            JobSide(process, list).wait(1)
