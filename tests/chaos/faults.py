"""Faults, one function each: it injects the fault into a running run and returns the seconds to the next new step."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.chaos.simulated import Driver, Run, Server, Site

AHEAD = 3
"""Steps further that count as going on: what was under way when a fault came may still be printed."""
LONG = 180.0
DRAIN_SECONDS = 12


@dataclass(kw_only=True)
class Scene:
    """A run, its driver and its cluster."""

    site: Site
    run: Run
    driver: Driver
    server: Server | None = None

    def settle(self) -> None:
        """Wait until every trainer node has a worker."""
        self.driver.wait_for(
            lambda: len(self.site.trainer_processes()) == len(self.site.trainers), LONG, "a worker on every node"
        )

    def go_on(self) -> float:
        """Wait for new steps and return the seconds."""
        return self.driver.wait_for_step(self.driver.step + AHEAD, LONG)

    def begin_again(self, before: int) -> float:
        """Wait until the workers have started anew, `before` being the times that they had, and for new steps; give the
        seconds.
        """
        return self.driver.wait_for(lambda: self.starts > before, LONG, "another start of the workers") + self.go_on()

    @property
    def starts(self) -> int:
        """Return how often this driver's workers continued from a checkpoint."""
        return sum(line.startswith("continuing after step ") for line in self.driver.lines)

    def restart(self) -> None:
        """Submit the same command again."""
        before = self.driver
        self.driver = self.run.drive(self.site.address)
        self.driver.steps += [(0.0, before.step)]  # steps done anew are not new

    def kill_driver(self) -> None:
        """SIGKILL the driver once there is a checkpoint, and wait until Ray has seen it."""
        self.driver.wait_for(lambda: len(published(self.run)) >= 2, LONG, "two checkpoints")
        self.driver.kill()
        deadline = time.monotonic() + 60
        while self.site.trainer_processes() and time.monotonic() < deadline:
            time.sleep(0.2)


def published(run: Run) -> list[Path]:
    """Return the folders of published checkpoints in ascending order."""
    return sorted(manifest.parent for manifest in run.checkpoints.glob("step-*/manifest.json"))


def first(processes: list[psutil.Process]) -> psutil.Process:
    assert processes, "there is no such process"
    return processes[0]


def trainer_killed(scene: Scene) -> float:
    before = scene.starts
    first(scene.site.trainer_processes()).send_signal(signal.SIGKILL)
    return scene.begin_again(before)


def trainer_hangs(scene: Scene) -> float:
    """Stop a worker with SIGSTOP: the process exists and does nothing."""
    before, stopped = scene.starts, first(scene.site.trainer_processes())
    stopped.suspend()
    try:
        return scene.begin_again(before)
    finally:
        if stopped.is_running():
            stopped.resume()


def trainer_slow(scene: Scene) -> float:
    """Slow down a worker by stopping it most of the time, until the log names it."""
    scene.settle()
    slow, said = first(scene.site.trainer_processes()), len(scene.driver.lines)
    started = time.monotonic()
    while not any(" is slow: " in line for line in scene.driver.lines[said:]):
        assert time.monotonic() - started < LONG, "the slow worker was not named"
        slow.suspend()
        time.sleep(0.15)
        slow.resume()
        time.sleep(0.02)
    return scene.go_on()


def data_worker_killed(scene: Scene) -> float:
    scene.driver.wait_for(lambda: bool(scene.site.data_processes()), LONG, "a task of the stream")
    first(scene.site.data_processes()).send_signal(signal.SIGKILL)
    return scene.go_on()


def node_removed(scene: Scene) -> float:
    """Remove a node without warning; add another when the run has continued."""
    scene.settle()
    before = scene.starts
    scene.site.remove(scene.site.trainers[-1])
    seconds = scene.begin_again(before)
    scene.site.add()
    return seconds


def node_drained(scene: Scene) -> float:
    """Drain a node with notice, and remove it at its deadline."""
    scene.settle()
    before, starts = published(scene.run), scene.starts
    node = scene.site.trainers[-1]
    scene.site.drain(node, DRAIN_SECONDS)
    noticed = time.monotonic()
    every = int(scene.run.settings.get("checkpoint.every", 25))
    scene.driver.wait_for(
        lambda: any(int(folder.name[5:]) % every for folder in published(scene.run) if folder not in before),
        DRAIN_SECONDS,
        "a checkpoint because of the notice",
    )
    time.sleep(max(0.0, DRAIN_SECONDS - (time.monotonic() - noticed)))
    scene.site.remove(node)
    seconds = scene.begin_again(starts)
    scene.site.add()
    return seconds


def node_added(scene: Scene) -> float:
    """Add a node; the worker group grows to it."""
    scene.settle()
    before = len(scene.site.trainer_processes())
    scene.site.add()
    seconds = scene.driver.wait_for(lambda: len(scene.site.trainer_processes()) > before, LONG, "another worker")
    seconds += scene.go_on()
    starts = scene.starts
    scene.site.remove(scene.site.trainers[-1])
    scene.begin_again(starts)
    return seconds


def driver_killed(scene: Scene) -> float:
    scene.kill_driver()
    scene.restart()
    return scene.go_on()


def head_restarted(scene: Scene) -> float:
    """Stop all nodes, including the head, and start a new cluster."""
    scene.kill_driver()
    trainers = len(scene.site.trainers)
    scene.site.stop()
    scene.site.start(trainers)
    scene.restart()
    return scene.go_on()


def damaged(scene: Scene, damage: Callable[[Path], None]) -> float:
    """Damage the newest checkpoint between two drivers: the run resumes from the one before."""
    scene.kill_driver()
    older, newest = published(scene.run)[-2:]
    damage(newest / "model.safetensors")
    scene.restart()
    seconds = scene.go_on()
    assert any("is damaged" in line and newest.name in line for line in scene.driver.lines), (
        "the damaged checkpoint was not named"
    )
    assert f"continuing after step {int(older.name[5:])}" in scene.driver.lines
    return seconds


def checkpoint_cut(scene: Scene) -> float:
    return damaged(scene, lambda path: os.truncate(path, path.stat().st_size // 2))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def checkpoint_flipped(scene: Scene) -> float:
    return damaged(scene, flip)


def storage_refuses(scene: Scene) -> float:
    """Put a file in place of the checkpoint folder until a write has failed."""
    place, aside, said = scene.run.checkpoints, scene.run.checkpoints.with_name("aside"), len(scene.driver.lines)
    place.rename(aside)
    place.write_text("")
    scene.driver.wait_for(
        lambda: any("cannot be written" in line for line in scene.driver.lines[said:]), LONG, "the failing write"
    )
    seconds = scene.go_on()
    place.unlink()
    aside.rename(place)
    written = published(scene.run)
    scene.driver.wait_for(lambda: published(scene.run) != written, LONG, "the next checkpoint")
    return seconds


def disk_full(scene: Scene) -> float:
    """Limit the file size of a worker to a few bytes until a write has failed."""
    workers, said = scene.site.trainer_processes(), len(scene.driver.lines)
    limits = [worker.rlimit(psutil.RLIMIT_FSIZE) for worker in workers]
    for worker, (_, hard) in zip(workers, limits, strict=True):
        worker.rlimit(psutil.RLIMIT_FSIZE, (4_096, hard))
    scene.driver.wait_for(
        lambda: any("cannot be written" in line for line in scene.driver.lines[said:]), LONG, "the failing write"
    )
    seconds = scene.go_on()
    for worker, limit in zip(workers, limits, strict=True):
        worker.rlimit(psutil.RLIMIT_FSIZE, limit)
    written = published(scene.run)
    scene.driver.wait_for(lambda: published(scene.run) != written, LONG, "the next checkpoint")
    return seconds


def mlflow_gone(scene: Scene) -> float:
    """For a minute."""
    assert scene.server
    scene.server.stop()
    seconds = scene.go_on()
    time.sleep(max(0.0, 60 - seconds))
    scene.server.start()
    return seconds


FAULTS: dict[str, Callable[[Scene], float]] = {
    "trainer SIGKILLed": trainer_killed,
    "trainer SIGSTOPped": trainer_hangs,
    "trainer slow": trainer_slow,
    "data worker SIGKILLed": data_worker_killed,
    "node removed without warning": node_removed,
    "node drained with notice": node_drained,
    "node added": node_added,
    "driver killed and resubmitted": driver_killed,
    "head restarted between jobs": head_restarted,
    "newest checkpoint cut short": checkpoint_cut,
    "newest checkpoint with flipped bytes": checkpoint_flipped,
    "storage refuses writes for a while": storage_refuses,
    "disk full while writing": disk_full,
    "MLflow server gone for a minute": mlflow_gone,
}
