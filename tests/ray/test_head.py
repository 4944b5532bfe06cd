"""cluster/head.sh, the local head that `make pretrain` submits to."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.simulated import free_port

HEAD = Path(__file__).parents[2] / "cluster" / "head.sh"
AGENT = 52365
"""Where the dashboard agent of a node listens, unless Ray is told otherwise."""


@pytest.fixture
def agents_port_taken() -> Iterator[None]:
    """Another Ray of this machine has the agent's port; where one has it already, that will do."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", AGENT))
            other.listen()
        except OSError:
            pass
        yield


def test_it_takes_jobs_beside_another_ray_and_stops(agents_port_taken: None, ray_folder: Path) -> None:
    environment = os.environ | {"DASHBOARD_PORT": str(free_port()), "HEAD_FOLDER": str(ray_folder)}

    def head(*words: str) -> str:
        return subprocess.run([HEAD, *words], env=environment, check=True, capture_output=True, text=True, timeout=120).stdout

    try:
        head("start")
        assert "two  words\n" in head("submit", "echo", "two  words")
    finally:
        stopped = head("stop")
    assert "the Ray head is stopped" in stopped
    assert "no Ray head of this project is running" in head("stop")


def test_a_login_in_an_address_is_refused_before_ray_sees_it() -> None:
    done = subprocess.run([HEAD, "submit", "true"], env=os.environ | {"MLFLOW_TRACKING_URI": "http://name:word@mlflow:5000"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.startswith("error: MLFLOW_TRACKING_URI has a login in it") and "word@" not in done.stderr
