import time

import pytest
import torch

from pipeline.train.meter import Meter, Step, percentile_milliseconds, training_metrics


def step(number: int, sums: dict[str, float], counts: dict[str, int], tokens: int, norm: float = 1.0) -> Step:
    of_device = {name: torch.tensor(value) for name, value in sums.items()}
    return Step(
        number=number,
        sums=of_device,
        counts=counts,
        norm=torch.tensor(norm),
        tokens=tokens,
        squares=tokens**2,
        masked=2,
    )


def without_times(total: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in total.items() if "seconds" not in key and not key.startswith("time.")}


def test_means_are_sums_over_counts_of_the_whole_interval() -> None:
    meter = Meter(world=1)
    meter.add(step(1, {"mlm": 30.0, "nsp": 2.0}, {"mlm": 10, "nsp": 4}, tokens=100))
    meter.add(step(2, {"mlm": 10.0, "nsp": 6.0}, {"mlm": 30, "nsp": 4}, tokens=50))
    total = without_times(meter.reduce()) | {"seconds": 3.0, "wait_seconds": 0.6, "time.200": 19, "time.300": 1}
    assert training_metrics(total) == pytest.approx(
        {
            "train/mlm_loss": 1.0,
            "train/nsp_loss": 1.0,
            "train/loss": 2.0,
            "speed/tokens_per_second": 50.0,
            "speed/step_milliseconds": 1500.0,
            "speed/step_milliseconds_95th": 100.0,
            "speed/data_wait_percent": 20.0,
        }
    )


def test_a_loss_that_counted_nothing_is_left_out() -> None:
    meter = Meter(world=1)
    meter.add(step(1, {"mlm": 0.0, "nsp": 2.0}, {"mlm": 0, "nsp": 4}, tokens=100))
    metrics = training_metrics(meter.reduce())
    assert metrics["train/nsp_loss"] == metrics["train/loss"] == 0.5 and "train/mlm_loss" not in metrics


def test_an_interval_goes_on_where_a_checkpoint_cut_it() -> None:
    whole, first = Meter(world=1), Meter(world=1)
    for meter in (whole, first):
        meter.add(step(1, {"mlm": 3.0}, {"mlm": 2}, tokens=7))
    second = Meter(world=1, carried=first.reduce())
    for meter in (whole, second):
        meter.add(step(2, {"mlm": 5.0}, {"mlm": 2}, tokens=9))
    timeless = [without_times(meter.reduce()) for meter in (whole, second)]
    assert (
        timeless[0]
        == timeless[1]
        == {"sum.mlm": 8.0, "count.mlm": 4, "tokens": 16, "squares": 130, "masked": 4, "steps": 2}
    )


def test_a_pause_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 10.0, 30.0, 30.0, 31.0, 36.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    meter = Meter(world=1)  # 0, twice: the first mark of a step, and the interval's start
    assert meter.reduce()["seconds"] == 10
    meter.resume_clock()  # 30, after an evaluation of 20 seconds
    assert meter.reduce()["seconds"] == 11
    assert meter.reduce()["seconds"] == 16


def test_clearing_begins_anew() -> None:
    meter = Meter(world=1)
    meter.add(step(1, {"mlm": 3.0}, {"mlm": 2}, tokens=7))
    meter.reduce()
    meter.clear()
    assert set(meter.reduce()) == {"seconds", "wait_seconds"}


def test_a_step_without_a_finite_gradient_adds_its_time_and_no_loss() -> None:
    meter = Meter(world=1)
    meter.add(step(4, {"mlm": 30.0}, {"mlm": 10}, tokens=100))
    for number, loss, norm in ((5, 1.0, float("nan")), (6, float("inf"), 1.0), (7, 10.0, 1.0), (8, 1.0, float("inf"))):
        meter.add(step(number, {"mlm": loss}, {"mlm": 10}, tokens=1, norm=norm))
    total = meter.reduce()
    assert without_times(total) == {
        "sum.mlm": 40.0,
        "count.mlm": 20,
        "tokens": 104,
        "squares": 10_004,
        "masked": 10,
        "steps": 5,
        "nonfinite": 3,
        "first_nonfinite": 5,
    }
    assert meter.nonfinite_in_a_row == 1
    assert training_metrics(total)["train/nonfinite_steps"] == 3 and training_metrics(total)["train/loss"] == 2.0
    meter.clear()
    meter.add(step(9, {"mlm": 1.0}, {"mlm": 10}, tokens=1, norm=float("nan")))
    assert "train/loss" not in training_metrics(meter.reduce()) and meter.nonfinite_in_a_row == 2


def test_every_step_is_timed_once_and_pauses_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # Made at 0; steps end at 0.1 and 0.3; read at 0.3; a pause to 9; a step ends at 9.01, and is read.
    clock = iter([0.0, 0.0, 0.1, 0.3, 0.3, 9.0, 9.0, 9.01, 9.01])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    meter = Meter(world=1)
    for number in (1, 2):
        meter.add(step(number, {"mlm": 1.0}, {"mlm": 1}, tokens=1))
    meter.reduce()
    meter.resume_clock()
    meter.add(step(3, {"mlm": 1.0}, {"mlm": 1}, tokens=1))
    times = {key: value for key, value in meter.reduce().items() if key.startswith("time.")}
    assert times == {"time.200": 1, "time.230": 1, "time.100": 1}  # 100 log10 of 100, 200 and 10 ms


def test_percentiles_by_hand() -> None:
    counts = {"time.100": 90, "time.200": 5, "time.250": 5, "tokens": 7}
    assert [percentile_milliseconds(counts, share) for share in (0.5, 0.9, 0.95, 0.96, 1.0)] == pytest.approx(
        [10, 10, 100, 10**2.5, 10**2.5]
    )
    assert percentile_milliseconds({}, 0.95) == 0
