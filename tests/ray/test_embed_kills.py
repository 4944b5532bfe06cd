"""jobs/embed.py on a cluster of two nodes: after 20 kills of driver, worker and node, ids and vectors are the same."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.simulated import ROOT, Site

SEED, KILLS, MOST_ATTEMPTS = 27, 20, 100
CPUS = 4
"""CPUs of the node, which are more than the head has: so the process with the model is never on the head."""
Kill = Callable[[subprocess.Popen[bytes]], bool]
"""Kills something, and returns whether it was there."""


@dataclass(kw_only=True)
class Scene:
    """A job that embeds texts in 20 parts with one process on the second node."""

    site: Site
    options: list[str]
    kills: Counter[str] = field(default_factory=Counter)

    def start(self, output: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(ROOT / "jobs/embed.py"), *self.options, "--output", str(output)]
        environment = os.environ | {"RAY_ADDRESS": self.site.address}
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)

    def kill_driver(self, job: subprocess.Popen[bytes]) -> bool:
        job.kill()
        return True

    def kill_worker(self, job: subprocess.Popen[bytes]) -> bool:
        """Kill the process with the model as soon as there is one; the job may end before."""
        while not (workers := self.site.processes("MapWorker|Embedding")) and job.poll() is None:
            time.sleep(0.05)
        for worker in workers[:1]:
            worker.kill()
        return bool(workers)

    def kill_node(self, _: subprocess.Popen[bytes]) -> bool:
        (node,) = self.site.trainers
        self.site.remove(node)
        self.site.add(cpus=CPUS)
        return True


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of each part, which hold its ids, texts and vectors."""
    return {path.name: path.read_bytes() for path in (folder / "parts").iterdir() if path.suffix == ".parquet"}


def rows_of(file: int) -> list[dict[str, Any]]:
    """Texts, of which some are empty and some are longer than the model reads."""
    return [
        {"id": f"{file}-{row}", "text": f"kar lost kand. {'mir nest ' * (row % 40)}" if row % 20 else " "}
        for row in range(200)
    ]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_twenty_kills_at_drawn_times_leave_the_bytes_of_an_undisturbed_run(tiny_run: Path, tmp_path: Path) -> None:
    """The times are uniform over the duration of an undisturbed job, and each kill is of the next kind. A worker's kill
    waits until there is a process with the model.

    An attempt is a start of the same command. A job that ends before its kill is an attempt without a kill.
    """
    (texts := tmp_path / "texts").mkdir()
    for file in range(2):
        (texts / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_of(file)))
    options = ["--checkpoint", str(tiny_run), "--input", str(texts), "--rows-per-part", "20", "--actors", "1"]
    options += ["--cpus", str(CPUS), "--placement.threads", "1", "--placement.device", "cpu"]
    site = Site(0)
    try:
        site.add(cpus=CPUS)
        scene, began = Scene(site=site, options=options), time.monotonic()
        assert scene.start(tmp_path / "undisturbed").wait() == 0
        disturb(scene, contents(tmp_path / "undisturbed"), time.monotonic() - began, tmp_path / "vectors")
    finally:
        site.stop()
    assert scene.kills == {"driver": 7, "worker": 7, "node": 6}


def disturb(scene: Scene, expected: dict[str, bytes], seconds: float, output: Path) -> None:
    """Start the job until there were KILLS kills, and compare whenever it is finished."""
    draw, attempts = random.Random(SEED), 0
    kinds: dict[str, Kill] = {"driver": scene.kill_driver, "worker": scene.kill_worker, "node": scene.kill_node}
    while scene.kills.total() < KILLS:
        attempts += 1
        assert attempts <= MOST_ATTEMPTS
        kind = list(kinds)[scene.kills.total() % len(kinds)]
        with scene.start(output) as job:
            try:
                job.wait(at := draw.uniform(0, seconds))
            except subprocess.TimeoutExpired:
                scene.kills[kind] += kinds[kind](job)
                print(f"attempt {attempts}: {kind} after {at:.1f} of {seconds:.1f} s, {scene.kills.total()} kills")
        if (output / "manifest.json").exists():
            assert contents(output) == expected
            shutil.rmtree(output)
    with scene.start(output) as job:
        assert job.wait() == 0
    assert contents(output) == expected
