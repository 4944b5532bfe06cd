"""cluster/head.sh, the local head that `make pretrain` submits to."""

import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.chaos.simulated import free_port
from tests.ray.listening import listening

HEAD = Path(__file__).parents[2] / "cluster" / "head.sh"
DEFAULT_PORTS = (52365, 10001)
"""Those of a node's dashboard agent and of a head's server for Ray Client."""


@pytest.fixture
def default_ports_taken() -> Iterator[None]:
    """Occupy the default ports, as another Ray would, unless one does already."""
    with ExitStack() as others:
        for port in DEFAULT_PORTS:
            with suppress(OSError):
                others.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


def jobs(port: str) -> list[dict[str, Any]]:
    """Return the jobs of a head as its dashboard's page asks for them."""
    token = (Path.home() / ".ray" / "auth_token").read_text().strip()
    answer = requests.get(
        f"http://127.0.0.1:{port}/api/jobs/", headers={"Authorization": f"Bearer {token}"}, timeout=30
    )
    answer.raise_for_status()
    return answer.json()


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_it_takes_jobs_beside_another_ray_and_stops(
    default_ports_taken: None, ray_folder: Path, tmp_path: Path
) -> None:
    folder, precious = ray_folder / ("long" * 16), tmp_path / "precious"
    environment = os.environ | {"DASHBOARD_PORT": str(free_port()), "HEAD_FOLDER": str(folder)}
    precious.write_text("mine")
    folder.mkdir(mode=0o700)
    (folder / "log").symlink_to(precious)

    def head(*words: str) -> str:
        done = subprocess.run(
            [HEAD, *words], env=environment, umask=0o022, check=True, capture_output=True, timeout=120
        )
        return done.stdout.decode()

    try:
        head("start")
        assert precious.read_text() == "mine" and not (folder / "log").is_symlink()
        rays = Path((folder / "ray-folder").read_text().strip())  # the folder's own name is too long for sockets
        assert rays.parent.parent == Path("/tmp") and mode(rays.parent) == mode(folder) == 0o700
        assert (folder / "spilled").is_dir()
        token = Path.home() / ".ray" / "auth_token"
        assert {mode(file) for file in (folder / "log", folder / "pid", token)} == {0o600}
        assert set().union(*listening(int((folder / "pid").read_text())).values()) == {"127.0.0.1"}
        script, greeting = tmp_path / "greet.py", tmp_path / "greeting"  # Ray may lose lines of a job that ends at once
        script.write_text(f"import pathlib, sys; pathlib.Path({str(greeting)!r}).write_text(f'hello {{sys.argv[1:]}}')")
        printed = head("submit", "python", str(script), "bert-tiny", "--seed", "1")
        assert greeting.read_text() == "hello ['bert-tiny', '--seed', '1']"
        (job,) = [one for one in jobs(environment["DASHBOARD_PORT"]) if one["entrypoint"].startswith("python")]
        assert job["entrypoint"] == f"python {script} bert-tiny --seed 1"
        assert job["metadata"]["job_name"] == "greet bert-tiny" and "commit" in job["metadata"]
        assert re.fullmatch(r"greet-bert-tiny-\d{8}-\d{6}-\d+", job["submission_id"])
        assert printed.splitlines()[0] == f"Ray job {job['submission_id']}; Ctrl-C stops it"
        assert "Running entrypoint" not in printed and "Runtime env" not in printed
        said = tmp_path / "said"
        words = f"(echo 'two  words'; echo $(umask) $(nice) $RAY_TRAIN_ENABLE_STATE_TRACKING) > {said}"
        long = [HEAD, "submit", "bash", "-c", f"{words}; echo begun; sleep 100"]
        waiting = subprocess.Popen(long, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert any(line == "begun\n" for line in waiting.stdout)
        assert said.read_text() == "two  words\n0022 0 1\n"
    finally:
        stopped = head("stop")
    last = waiting.communicate(timeout=60)[1].splitlines()[-1]
    assert last == "error: the Ray head was stopped before the job ended; the same command continues a run"
    assert waiting.returncode == 1
    assert stopped == "the Ray head is stopped\n"  # in time, while a job runs
    assert "no Ray head of this project is running" in head("stop")
    shutil.rmtree(rays.parent)


def test_a_login_in_an_address_is_refused_before_ray_sees_it() -> None:
    environment = os.environ | {"MLFLOW_TRACKING_URI": "http://name:word@mlflow:5000"}
    done = subprocess.run([HEAD, "submit", "true"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.startswith("error: MLFLOW_TRACKING_URI has a login in it")
    assert "word@" not in done.stderr
