"""Messages of workers to the driver, and its report when there are none."""

import re
import sys
import threading
import time
from pathlib import Path

import pytest
import ray

from pipeline.config.data import Preparation, Sampling, VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.placement import Placement
from pipeline.config.training import Batch
from pipeline.errors import PipelineError
from pipeline.tracking.tracker import Tracker
from pipeline.train import launch
from pipeline.train.launch import take_reservation, watch
from pipeline.workflows.pretrain import pretrain

pytestmark = [pytest.mark.second, pytest.mark.usefixtures("local_ray")]


def test_silence_is_reported_once_until_the_next_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(launch, "POLL_SECONDS", 0.05)
    tracker = ray.remote(Tracker).options(num_cpus=0).remote("a test")
    stop, told, shown = threading.Event(), [], []
    thread = threading.Thread(
        target=watch, args=(tracker, stop, told.append, lambda step, metrics: shown.append(step)), daemon=True
    )
    ray.get(tracker.log.remote(1, {"train/loss": 1.0}))
    thread.start()

    def wait_for(count: int) -> None:
        deadline = time.monotonic() + 30
        while len(told) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        assert len(told) == count

    wait_for(1)
    ray.get(tracker.log.remote(2, {"train/loss": 1.0}))
    wait_for(2)
    stop.set()
    thread.join()
    assert shown == [1, 2]
    assert all(
        re.match(r"no news from the workers for \d+ s; the machine is busy, or a step, a compilation ", line)
        for line in told
    )


def test_a_driver_releases_the_reservation_of_the_one_before(tmp_path: Path) -> None:
    from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
        get_or_create_autoscaling_coordinator,
    )

    coordinator = get_or_create_autoscaling_coordinator()
    ray.get(
        coordinator.request_resources.remote(requester_id="train-first", resources=[{"CPU": 1.0}], expire_after_s=180)
    )
    (tmp_path / "reservation.json").write_text('{"requester": "train-first"}')
    deadline = time.monotonic() + 30
    while not ray.get(coordinator.get_reserved_resources.remote("train-first")) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert ray.get(coordinator.get_reserved_resources.remote("train-first"))
    take_reservation(str(tmp_path), "train-second")
    assert not ray.get(coordinator.get_reserved_resources.remote("train-first"))
    assert "train-second" in (tmp_path / "reservation.json").read_text()


def run_a_broken_module(settings: dict) -> None:
    """Run a worker whose forward fails, as with a bug in the model or its compiler."""
    from pipeline.objectives.masked import MaskedTokens
    from pipeline.train import worker

    def forward(self: MaskedTokens, batch: object) -> None:
        raise RuntimeError("the module is broken")

    MaskedTokens.forward = forward
    worker.run(settings)


@pytest.mark.long  # its parts: tests/unit/tracking
def test_an_error_that_restarts_do_not_fix_is_reported_at_once_and_ends_the_run(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "run", run_a_broken_module)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have this module
    config = Pretrain(
        corpus=(str(small_corpus),),
        output=str(tmp_path),
        prepare=Preparation(window_characters=6_000, piece_characters=1_000, near_duplicates=None),
        vocabulary=VocabularySettings(size=150),
        sampling=Sampling(maximum_length=32),
        model=Model(layers=1, width=32, heads=2, feed_forward=64, maximum_positions=32),
        batch=Batch(rows_per_step=8, rows_per_slot=4),
        placement=Placement(compile="off", device="cpu", threads=1),
    )
    lines: list[str] = []
    with pytest.raises(
        PipelineError,
        match=r"^worker \d on \S+ failed twice with the same error and no step in between: RuntimeError: the "
        r"module is broken; the full error is in",
    ):
        pretrain(config, lines.append)
    (told,) = [line for line in lines if " failed" in line]
    assert re.fullmatch(
        r"worker \d on \S+ failed: RuntimeError: the module is broken; the workers start again, as often as "
        r"placement.restarts allows",
        told,
    )
    assert sum(line.startswith("torch.compile is off") for line in lines) == 2  # starts
