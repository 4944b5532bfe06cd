"""jobs/serve.py with Ray Serve: right answers while a replica is killed, and nothing left when it is stopped.

What a server in one process does too is tested in tests/unit/serve.
"""

import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import requests

from pipeline import api
from tests.chaos.simulated import free_port
from tests.serving import become_health, hang_up, health

TEXTS = ["kar", "lost kap", "mist", "kar kar kar kar", "kand lost"]


@pytest.fixture(scope="module")
def said() -> list[str]:
    """Lines of the server until it is ready."""
    return []


@pytest.fixture(scope="module")
def server(tiny_run: Path, said: list[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A running server's URL and process."""
    port = free_port()
    command = [sys.executable, "jobs/serve.py", "--checkpoint", str(tiny_run), "--port", str(port), "--replicas", "2"]
    options = ["--cpus", "0.5", "--placement.address", "local", "--limits.waiting", "4"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.rstrip("\n"))
            if line.startswith("try: curl"):
                break
        yield f"http://127.0.0.1:{port}", process
        process.kill()


def test_it_says_what_it_does_until_it_is_ready(
    server: tuple[str, subprocess.Popen[str]], said: list[str], tiny_run: Path
) -> None:
    told = [line for line in said if " of 2 processes ready after " not in line]
    steps = [
        "served by Ray Serve, because replicas is 2; loading Ray Serve and torch",
        f"loading the model {tiny_run}, to check it",
        "starting Ray, or joining a cluster",
        "Ray: started for this command alone, ",
        "starting Ray Serve",
        "starting 2 processes",
    ]
    assert [line[: len(step)] for line, step in zip(told, steps)] == steps
    assert f" is served at {server[0]} by 2 processes; Ctrl-C stops it" in told[6]
    assert told[7].startswith("routes: ") and told[8].startswith("try: curl ") and len(told) == 9


@pytest.mark.second
def test_a_client_that_hangs_up_is_no_error_of_the_server(server: tuple[str, subprocess.Popen[str]]) -> None:
    url, _ = server
    body = {"inputs": [" ".join(["kar"] * 30)] * 1_000}
    hang_up(url, body, seconds=(0.05, 0.1, 0.2))


def replicas(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Processes that hold the model."""
    below = psutil.Process(process.pid).children(recursive=True)
    return [child for child in below if child.is_running() and "ServeReplica:bertstream:model" in child.name()] or [
        child for child in below if "ServeReplica:bertstream:model" in " ".join(child.cmdline())
    ]


def test_a_killed_replica_gives_no_wrong_answer(server: tuple[str, subprocess.Popen[str]], tiny_run: Path) -> None:
    url, process = server
    wanted = api.load(str(tiny_run)).embed(TEXTS)
    killed, until = math.inf, time.monotonic() + 60
    before, after = list[int](), list[int]()

    def ask(number: int) -> None:
        """Ask for three seconds after the kill, and until 80 questions that were asked after it have an answer."""
        while time.monotonic() < min(until, killed + 3) or (after.count(200) < 80 and time.monotonic() < until):
            row, statuses = number % len(TEXTS), before if time.monotonic() < killed else after
            found = requests.post(f"{url}/embed", json={"inputs": TEXTS[row]}, timeout=60)
            statuses.append(found.status_code)
            if found.status_code == 200:
                np.testing.assert_allclose(found.json()[0], wanted[row], rtol=0, atol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, number) for number in range(4)]
        while before.count(200) < 20 and time.monotonic() < until:
            time.sleep(0.05)
        both = replicas(process)
        assert len(both) == 2
        both[0].kill()
        killed = time.monotonic()
        for one in asking:
            one.result()
    assert {*before, *after} <= {200, 503} and before.count(200) >= 20 and after.count(200) >= 80


@pytest.mark.second
def test_health_is_good_while_requests_fill_the_queue(server: tuple[str, subprocess.Popen[str]]) -> None:
    url, _ = server
    begun, statuses, found = time.monotonic(), [], []

    def goes_on() -> bool:
        """Whether requests go on: for 8 seconds, and at most 60 until the queue was full and health was asked twice."""
        seconds = time.monotonic() - begun
        return seconds < 8 or (seconds < 60 and (429 not in statuses or len(found) < 2))

    def ask(number: int) -> None:
        while goes_on():
            body = {"inputs": [" ".join(["kar"] * 30)] * 200}
            statuses.append(requests.post(f"{url}/embed", json=body, timeout=60).status_code)

    with ThreadPoolExecutor(250) as pool:
        asking = [pool.submit(ask, number) for number in range(250)]
        while goes_on():
            found.append(health(url))
            time.sleep(0.1)
        for one in asking:
            one.result()
    assert set(found) == {200} and len(found) > 1
    assert 429 in statuses


@pytest.mark.second
def test_health_is_bad_while_no_replica_answers(server: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = server
    assert become_health(200, url, 30)
    before = replicas(process)
    before[0].suspend()  # the other one answers
    time.sleep(2)
    assert health(url) == 200
    before[1].suspend()
    try:
        assert become_health(503, url, 10)
        found = requests.get(f"{url}/health", timeout=10)
        assert found.json()["error"] == "no replica of the model answers"
    finally:
        for replica in before:
            replica.resume()
    assert become_health(200, url, 10)
    for replica in replicas(process):
        replica.kill()
    assert become_health(503, url, 5)
    assert become_health(200, url, 60)  # Ray Serve has started others


def test_stopped_it_leaves_no_process(server: tuple[str, subprocess.Popen[str]]) -> None:
    _, process = server
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    _, alive = psutil.wait_procs(below, timeout=30)
    assert not alive


@pytest.mark.long  # beside it: the test of what it says until it is ready
def test_replicas_that_do_not_start_in_time_are_an_error_and_leave_nothing(tiny_run: Path) -> None:
    """With placement.autoscaled, the command waits for a node that could hold them."""
    port = free_port()
    command = [sys.executable, "jobs/serve.py", "--checkpoint", str(tiny_run), "--port", str(port), "--cpus", "512"]
    options = ["--placement.address", "local", "--placement.autoscaled", "--placement.device", "cpu"]
    command += [*options, "--start-timeout", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        below: dict[int, psutil.Process] = {}
        until = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < until:
            with suppress(psutil.NoSuchProcess):
                below |= {child.pid: child for child in psutil.Process(process.pid).children(recursive=True)}
            time.sleep(0.5)
        process.kill()
        assert process.stderr is not None
        (line,) = [line for line in process.stderr if line.startswith("error: ")]
    assert process.returncode == 2 and below
    assert line.startswith(
        "error: 0 of 1 replicas are ready after 5 seconds (start_timeout): each asks for 512 CPUs, and the cluster has "
    )
    assert line.endswith("lower replicas, cpus or gpus, or raise start_timeout\n")
    _, alive = psutil.wait_procs(below.values(), timeout=30)
    assert not alive
