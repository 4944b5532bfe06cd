"""Number of runs of an ablation that fit into a cluster at the same time, and their CPUs."""

from typing import Any

import pytest

from pipeline.ablation.room import Room, room_for
from pipeline.config.ablate import Ablate
from pipeline.config.placement import Placement
from pipeline.errors import ConfigError


def settings(tokens: str | None = "10M", **changed: Any) -> Ablate:
    return Ablate(ablation="pairs", tokens=tokens, **changed)


def node(cpus: float, gpus: float = 0) -> dict[str, float]:
    return {"CPU": cpus, "GPU": gpus}


def shares(room: Room) -> tuple[int, float | None, float | None]:
    return room.at_once, room.placement.worker_cpus, room.placement.data_cpus


def test_two_runs_of_one_thread_share_two_cores() -> None:
    """Half a CPU per worker leaves one CPU, of which each data stream has half."""
    one_thread = settings(placement=Placement(threads=1))
    assert shares(room_for(one_thread, 9, [node(2)])) == (2, 0.5, 0.5)
    assert shares(room_for(one_thread, 9, [node(8)])) == (8, 0.875, 0.125)
    assert shares(room_for(one_thread, 2, [node(8)])) == (2, 1.0, 3.0)
    assert shares(room_for(settings(placement=Placement(threads=2)), 9, [node(8)])) == (4, 1.0, 1.0)


def test_a_run_alone_keeps_its_placement() -> None:
    """A worker without placement.threads uses all cores."""
    for config, runs, cpus in (
        (settings(), 9, 8),
        (settings(placement=Placement(threads=8)), 9, 8),
        (settings(placement=Placement(threads=1)), 1, 8),
        (settings(placement=Placement(threads=1), at_once=1), 9, 8),
        (settings(placement=Placement(threads=1)), 9, 1.5),
    ):
        assert room_for(config, runs, [node(cpus)]) == Room(at_once=1, placement=config.placement)


def test_each_run_has_its_own_gpus() -> None:
    assert shares(room_for(settings(), 20, [node(64, 8)])) == (8, 1.0, 7.0)
    assert shares(room_for(settings(workers=2), 20, [node(32, 4), node(32, 4)])) == (4, 1.0, 14.0)
    assert shares(room_for(settings(workers=3), 20, [node(64, 8)])) == (2, 1.0, 29.0)
    assert shares(room_for(settings(at_once=3), 20, [node(64, 8)])) == (3, 1.0, 20.333)


def test_the_requests_of_all_runs_fit_the_cluster() -> None:
    for cpus in range(2, 40):
        for workers in (1, 2, 3):
            room = room_for(settings(workers=workers, placement=Placement(threads=1)), 99, [node(cpus)])
            at_once, worker, data = shares(room)
            assert at_once == 1 or at_once * (workers * worker + data) <= cpus


def test_timed_runs_do_not_share_cpus() -> None:
    timed = settings(tokens=None, minutes=15, placement=Placement(threads=1))
    assert room_for(timed, 9, [node(8)]).at_once == 1
    assert room_for(timed, 9, [node(8, 4)]).at_once == 4
    words = r"^at_once \(2\) with minutes \(15\): runs on the same CPUs slow each other down; leave at_once out"
    with pytest.raises(ConfigError, match=words):
        room_for(settings(tokens=None, minutes=15, at_once=2), 9, [node(8)])


def test_one_cpu_is_too_little_for_a_run() -> None:
    with pytest.raises(ConfigError, match="give Ray 2 CPUs or more"):
        room_for(settings(), 9, [node(1)])


def test_an_autoscaled_cluster_trains_as_many_runs_as_asked() -> None:
    placement = Placement(autoscaled=True, device="cuda")
    for at_once, found in ((None, 1), (4, 4)):
        room = room_for(settings(placement=placement, at_once=at_once), 9, [node(4)])
        assert room == Room(at_once=found, placement=placement)
