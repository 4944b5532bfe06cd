"""The server in one process: when it is taken, its command from start to stop, its limits, and clients that hang up."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from jobs.serve import main
from pipeline import api
from pipeline.command_line import stopping
from pipeline.config.serve import Limits, Serve, ServePlacement, require_serve
from pipeline.errors import ConfigError
from pipeline.serve import one_process
from pipeline.serve.address import bound, listen
from pipeline.serve.model import Refused, ServedModel
from pipeline.serve.one_process import threads_of
from pipeline.serve.uses import HELD, Inputs
from tests.chaos.simulated import free_port
from tests.serving import become_health, hang_up, metrics
from tests.unit.serve.test_routes import post, served

SETTINGS: dict[str, tuple[dict[str, Any], str | None, str | None]] = {
    "nothing": ({}, None, None),
    "this machine alone": ({"placement": ServePlacement(address="local")}, "10.0.0.1:6379", None),
    "this machine alone, by the environment": ({}, "local", None),
    "two replicas": ({"replicas": 2}, None, "replicas is 2"),
    "a cluster": ({"placement": ServePlacement(address="auto")}, "local", "placement.address is auto"),
    "the cluster of a Ray job": ({}, "10.0.0.1:6379", "RAY_ADDRESS is 10.0.0.1:6379"),
    "nodes to come": (
        {"placement": ServePlacement(autoscaled=True, device="cpu")},
        None,
        "placement.autoscaled is set",
    ),
}
"""Settings and RAY_ADDRESS, and the setting that needs Ray Serve."""


@pytest.mark.parametrize("case", SETTINGS)
def test_only_replicas_and_clusters_need_ray(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, address, expected = SETTINGS[case]
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    assert Serve(checkpoint="m", **settings).ray_setting == expected


def test_only_ray_serve_needs_all_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "grpc_reflection" else name)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    require_serve(Serve(checkpoint="m"))
    with pytest.raises(ConfigError) as missing:
        require_serve(Serve(checkpoint="m", replicas=2))
    assert str(missing.value) == "serving needs the package grpc_reflection: pip install 'bertstream[serve]'"


def test_the_threads_are_all_cores_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_process, "cores", lambda: 4)
    for settings, threads in (({}, 4), ({"cpus": 2}, 2), ({"cpus": 0.5}, 1), ({"cpus": 4}, 4)):
        assert threads_of(Serve(checkpoint="m", **settings)) == threads
    assert threads_of(Serve(checkpoint="m", cpus=2, placement=ServePlacement(threads=3))) == 3
    with pytest.raises(ConfigError, match=r"^cpus \(5\) is more than the 4 cores of this machine: lower it, or serve"):
        threads_of(Serve(checkpoint="m", cpus=5))
    assert Serve(checkpoint="m").cpus_of_replica == 1 and Serve(checkpoint="m", cpus=0.5).cpus_of_replica == 0.5


@pytest.fixture
def signals() -> Iterator[None]:
    """The handlers of Ctrl-C and SIGTERM, and the note that the process was terminated, as they were before."""
    assert threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    stopping.terminated.clear()


class Held:
    """The model, whose computing waits until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.computed = threading.Event(), list[int]()
        answer_all = ServedModel.answer_all

        def held(model: ServedModel, asked: Sequence[Inputs]) -> list[list[Any] | Refused]:
            self.computed.append(len(asked))
            assert self.go.wait(30)
            return answer_all(model, asked)

        monkeypatch.setattr(ServedModel, "answer_all", held)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_the_stopped_command_answers_what_it_has_accepted(
    number: signal.Signals,
    code: int,
    tiny_run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    signals: None,
) -> None:
    held, port, texts = Held(monkeypatch), free_port(), ["kar", "lost kap"]
    url = f"http://127.0.0.1:{port}"

    def ask() -> list[Any]:
        """Ask twice, stop the server while both are computed, and let them go when it accepts nothing more."""
        assert become_health(200, url, 30)
        with ThreadPoolExecutor(2) as pool:
            asking = [pool.submit(post, f"{url}/embed", {"inputs": texts}) for _ in range(2)]
            until = time.monotonic() + 30
            while "bertstream_requests_in_progress 3.0" not in metrics(url) and time.monotonic() < until:
                pass  # both, and the one for the metrics
            os.kill(os.getpid(), number)
            assert become_health(0, url, 30)
            time.sleep(0.3)  # longer than uvicorn gives every connection
            held.go.set()
            return [one.result() for one in asking]

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        assert main(["--checkpoint", str(tiny_run), "--port", str(port), "--placement.threads", "1"]) == code
        answers = asking.result()
    wanted = api.load(str(tiny_run)).embed(texts)
    for answer in answers:
        np.testing.assert_allclose(answer.json(), wanted, rtol=0, atol=1e-5)
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[:2] == [
        "served by this process alone, without Ray; loading torch",
        f"loading the model {tiny_run}",
    ]
    assert f" is served at {url} by 1 process; Ctrl-C stops it" in lines[2]
    assert lines[3].startswith("routes: ") and lines[4].startswith("try: curl ")
    assert lines[5:] == ["stopping: 2 accepted requests are answered first"]
    assert said.err == "stopped; no request is answered any more\n"


def test_a_taken_address_is_one_line_before_and_after_loading(
    tiny_run: Path, capsys: pytest.CaptureFixture[str], signals: None
) -> None:
    config = Serve(checkpoint=str(tiny_run), port=free_port())
    with bound(config) as first, bound(config) as second:  # as two commands that start at the same time
        listen(first, config)
        with pytest.raises(ConfigError, match=rf"^host and port \(127.0.0.1:{config.port}\) cannot be used \(Address"):
            listen(second, config)
        assert main(["--checkpoint", str(tiny_run), "--port", str(config.port)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(
        f"error: host and port (127.0.0.1:{config.port}) cannot be used (Address already in use)"
    )
    assert "loading the model" not in said.out


def test_other_machines_need_a_token(
    tiny_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, signals: None
) -> None:
    monkeypatch.delenv("BERTSTREAM_SERVE_TOKEN", raising=False)
    assert main(["--checkpoint", str(tiny_run), "--host", "0.0.0.0"]) == 2
    assert "error: host (0.0.0.0) lets other machines ask: set the environment variable" in capsys.readouterr().err


def test_a_full_server_refuses_and_is_healthy(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, config = Held(monkeypatch), Serve(checkpoint=str(tiny_run), limits=Limits(waiting=2))
    with served(config) as (url, _), ThreadPoolExecutor(HELD + 4) as pool:
        asking = [pool.submit(post, f"{url}/embed", {"inputs": "kar"}) for _ in range(HELD + 4)]
        refused = _first(asking, 2)
        assert requests.get(f"{url}/health", timeout=2).status_code == 200
        held.go.set()
        statuses = [one.result().status_code for one in asking]
    assert [found.status_code for found in refused] == [429, 429]
    assert sorted(statuses) == [200] * (HELD + 2) + [429] * 2
    assert sum(held.computed) == HELD + 2 and len(held.computed) <= 3


def _first(asking: list[Future[requests.Response]], count: int) -> list[requests.Response]:
    """The first answers, while the other requests wait."""
    until = time.monotonic() + 30
    while sum(one.done() for one in asking) < count and time.monotonic() < until:
        time.sleep(0.01)
    return [one.result() for one in asking if one.done()]


def test_an_answer_that_is_late_is_refused_and_not_computed(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, config = Held(monkeypatch), Serve(checkpoint=str(tiny_run), limits=Limits(seconds=0.2))
    with served(config) as (url, _), ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(post, f"{url}/embed", {"inputs": "kar"}) for _ in range(2)]
        for one in asking:
            assert one.result().json()["error"] == "no answer within 0.2 seconds (limits.seconds)"
        held.go.set()
        assert post(f"{url}/embed", {"inputs": "kar"}).status_code == 200
    assert sum(held.computed) <= 3


def test_a_client_that_hangs_up_is_no_error_and_its_texts_are_not_computed(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    with served(Serve(checkpoint=str(tiny_run))) as (url, _), ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, f"{url}/embed", {"inputs": "kar"})
        while not held.computed:
            time.sleep(0.01)
        hang_up(url, {"inputs": ["kar lost"]}, seconds=(0.05, 0.05))
        held.go.set()
        assert first.result().status_code == 200
        assert post(f"{url}/embed", {"inputs": "kar"}).status_code == 200
        assert 'status="499"} 2.0' in metrics(url)
    assert held.computed == [1, 1]


def test_a_model_that_fails_answers_500_and_goes_on(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> list[Any]:
        raise RuntimeError("out of memory")

    with served(Serve(checkpoint=str(tiny_run))) as (url, model):
        with monkeypatch.context() as patched:
            patched.setattr(ServedModel, "answer", fails)
            found = post(f"{url}/embed", {"inputs": "kar"})
        assert post(f"{url}/embed", {"inputs": "kar"}).status_code == 200
    assert (found.status_code, found.json()["error_type"]) == (500, "Backend")
    assert found.json()["error"] == "the model failed: RuntimeError; the server's logs say why"
    assert "RuntimeError: out of memory" in caplog.text
