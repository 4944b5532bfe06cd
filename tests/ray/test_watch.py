"""What a driver hears of its workers, and says when it hears nothing."""

import re
import threading
import time

import pytest
import ray

from pipeline.train import launch
from pipeline.train.launch import take_reservation, watch
from pipeline.train.tracking import Tracker

pytestmark = pytest.mark.usefixtures("local_ray")


def test_silence_is_told_once_until_there_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(launch, "POLL_SECONDS", 0.05)
    tracker = ray.remote(Tracker).options(num_cpus=0).remote("a test")
    stop, told, shown = threading.Event(), [], []
    thread = threading.Thread(target=watch, args=(tracker, stop, told.append, lambda step, metrics: shown.append(step)), daemon=True)
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
    assert all(re.match(r"no news from the workers for \d+ s; the machine is busy, or they are at work on", line) for line in told)


@pytest.mark.long
def test_a_driver_gives_up_what_the_one_before_it_had_reserved(tmp_path) -> None:
    from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import get_or_create_autoscaling_coordinator

    coordinator = get_or_create_autoscaling_coordinator()
    bundle = {"CPU": 2.0}
    ray.get(coordinator.request_resources.remote(requester_id="train-first", resources=[bundle], expire_after_s=180))
    (tmp_path / "reservation.json").write_text('{"requester": "train-first"}')
    assert ray.get(coordinator.get_reserved_resources.remote("train-first"))
    take_reservation(str(tmp_path), "train-second")
    ray.get(coordinator.request_resources.remote(requester_id="train-second", resources=[{"CPU": 6.0}], expire_after_s=180))
    deadline = time.monotonic() + 30
    while not ray.get(coordinator.get_reserved_resources.remote("train-second")) and time.monotonic() < deadline:
        time.sleep(0.2)
    (reserved,) = ray.get(coordinator.get_reserved_resources.remote("train-second")).values()
    ray.get(coordinator.cancel_request.remote(requester_id="train-second"))
    assert reserved["CPU"] == 6.0 and "train-second" in (tmp_path / "reservation.json").read_text()
