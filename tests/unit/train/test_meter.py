import time

import pytest
import torch

from pipeline.train.meter import Meter, training_metrics


def test_means_are_sums_over_counts_of_the_whole_interval() -> None:
    meter = Meter(world=1)
    meter.add({"mlm": torch.tensor(30.0), "nsp": torch.tensor(2.0)}, {"mlm": 10, "nsp": 4}, tokens=100)
    meter.add({"mlm": torch.tensor(10.0), "nsp": torch.tensor(6.0)}, {"mlm": 30, "nsp": 4}, tokens=50)
    total = meter.reduce() | {"seconds": 3.0, "wait_seconds": 0.6}
    assert training_metrics(total) == pytest.approx(
        {
            "train/mlm_loss": 1.0,
            "train/nsp_loss": 1.0,
            "train/loss": 2.0,
            "speed/tokens_per_second": 50.0,
            "speed/step_milliseconds": 1500.0,
            "speed/data_wait_percent": 20.0,
        }
    )


def test_an_interval_goes_on_where_a_checkpoint_cut_it() -> None:
    whole, first = Meter(world=1), Meter(world=1)
    for meter in (whole, first):
        meter.add({"mlm": torch.tensor(3.0)}, {"mlm": 2}, tokens=7)
    second = Meter(world=1, carried=first.reduce())
    for meter in (whole, second):
        meter.add({"mlm": torch.tensor(5.0)}, {"mlm": 2}, tokens=9)
    timeless = [{key: value for key, value in meter.reduce().items() if "seconds" not in key} for meter in (whole, second)]
    assert timeless[0] == timeless[1] == {"sum.mlm": 8.0, "count.mlm": 4, "tokens": 16, "steps": 2}


def test_a_pause_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 30.0, 31.0, 36.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    meter = Meter(world=1)  # 0
    assert meter.reduce()["seconds"] == 10
    meter.resume_clock()  # 30, after an evaluation of 20 seconds
    assert meter.reduce()["seconds"] == 11
    assert meter.reduce()["seconds"] == 16


def test_clearing_begins_anew() -> None:
    meter = Meter(world=1)
    meter.add({"mlm": torch.tensor(3.0)}, {"mlm": 2}, tokens=7)
    meter.reduce()
    meter.clear()
    assert set(meter.reduce()) == {"seconds", "wait_seconds"}
