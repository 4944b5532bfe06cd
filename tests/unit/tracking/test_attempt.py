"""Drivers of one run in a bucket, against moto's server: one at a time, and what an overtaken one writes is void."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from werkzeug.serving import WSGIRequestHandler, make_server

from pipeline.config.jobs import Pretrain
from pipeline.config.training import AdamW, Checkpoints
from pipeline.corpus.order import Cursor
from pipeline.errors import ConfigError, TakenOver
from pipeline.files import storage
from pipeline.files.lease import InStore, Lease, LeaseClock, PutRefused, in_store
from pipeline.optim.build import build_optimizer
from pipeline.reporting import no_op
from pipeline.saved import checkpoints
from pipeline.tracking.attempt import Attempt, attempted
from pipeline.train.checkpoint import State
from pipeline.train.saver import Saver

boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")

NUMBERS = count(1)
CURSOR = Cursor(epoch=0, window=1, row=2, rows_in_window=9)


class Server:
    """An S3 server that calls `before[NAME]`, once, before it puts an object whose key ends in NAME."""

    def __init__(self) -> None:
        self.application = moto_server.DomainDispatcherApplication(moto_server.create_backend_app)
        self.before: dict[str, Callable[[], None]] = {}

    def __call__(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environment["REQUEST_METHOD"] == "PUT":
            for name in [name for name in self.before if environment["PATH_INFO"].endswith(name)]:
                self.before.pop(name)()
        return self.application(environment, start)


class Silent(WSGIRequestHandler):
    """Log no requests."""

    def log(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    application = Server()
    listening = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Silent)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listening.server_port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        storage.store.cache_clear()
        boto3.client("s3").create_bucket(Bucket="texts")
        yield application
        storage.store.cache_clear()
    listening.shutdown()


@pytest.fixture
def folder(server: Server) -> str:
    """The folder of a new run; its name has characters that URLs quote."""
    return f"s3://texts/my runs%23/run-{next(NUMBERS)}"


@pytest.fixture
def module(training, tiny_config: Pretrain) -> torch.nn.Module:
    return training.module(tiny_config)


class Watch(LeaseClock):
    """A clock that goes on only while a driver waits."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.time, self.meanwhile = 0.0, meanwhile

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.meanwhile()


def stored(folder: str) -> InStore:
    found = in_store(storage.join(folder, "lease.json"))
    assert found
    return found


def lease(folder: str, driver: str, watch: Watch | None = None) -> Lease:
    return Lease(stored(folder), driver, watch or Watch())


def taken(folder: str, driver: str, step: int) -> None:
    """Take the run over, or begin it, with an attempt that counts from `step`."""
    attempt = Attempt(folder, lease(folder, driver), no_op)
    attempt.take()
    attempt.begin(step)


def test_an_object_is_created_once_and_replaced_only_at_its_version(folder: str, tmp_path: Path) -> None:
    mine = stored(folder)
    assert mine.read() is None
    version = mine.write(b"1", None)
    for stale in (None, {"e_tag": '"0"'}):
        with pytest.raises(PutRefused):
            mine.write(b"2", stale)
    newer = mine.write(b"2", version)
    assert mine.read() == (b"2", newer) and storage.read_bytes(f"{folder}/lease.json") == b"2"
    with pytest.raises(PutRefused):
        mine.write(b"3", version)
    storage.delete_file(f"{folder}/lease.json")
    with pytest.raises(PutRefused):
        mine.write(b"3", newer)
    assert in_store(str(tmp_path)) is None


def test_two_drivers_at_once(folder: str) -> None:
    lines: list[str] = []
    first = lease(folder, "job 1, process 7 on 10.0.0.1")
    with attempted(folder, first, pytest.fail, pytest.fail) as attempt:
        assert attempt.begin(0) == 1
        with pytest.raises(ConfigError) as refused:
            with attempted(folder, lease(folder, "job 2", Watch(first.renew)), pytest.fail, lines.append):
                pytest.fail("the run has a driver")
    assert str(refused.value) == (
        f"run {folder} is being trained already by job 1, process 7 on 10.0.0.1 (attempt 1); wait for it, "
        "stop it (ray job stop), or choose another --name"
    )
    assert lines == [
        "attempt 1 of this run (job 1, process 7 on 10.0.0.1) has not ended; "
        "taking the run over if it does not renew its lease for 60 s"
    ]
    with suppress(ZeroDivisionError), attempted(folder, lease(folder, "job 3"), pytest.fail, pytest.fail) as attempt:
        assert attempt.begin(0) == 2
        raise ZeroDivisionError
    with attempted(folder, lease(folder, "job 4"), pytest.fail, pytest.fail) as attempt:  # released by both
        assert attempt.begin(0) == 3
        killed = Attempt(folder, lease(folder, "job 5"), lines.append)
        killed.take()
        assert killed.begin(1_200) == 4
    assert lines[-1] == "attempt 4 has taken the run over from attempt 3, from step 1,200"


def test_a_driver_that_lost_its_lease_stops_with_one_line(folder: str) -> None:
    ended, errors = threading.Event(), []

    def end_run(error: TakenOver) -> None:
        errors.append(error)
        ended.set()

    with pytest.raises(TakenOver) as stopped:
        with attempted(folder, lease(folder, "job 1"), end_run, pytest.fail, every=0.01):
            storage.write_json(f"{folder}/lease.json", {"attempt": 2, "driver": "job 2", "holder": "b"})
            assert ended.wait(10)
            raise KeyboardInterrupt  # as `end_run` of a run makes the main thread do
    assert [stopped.value] == errors and str(stopped.value) == (
        f"run {folder} was taken over by job 2 (attempt 2): this attempt (1) stops and publishes nothing more"
    )
    with pytest.raises(KeyboardInterrupt), attempted(folder, lease(folder, "job 3"), pytest.fail, no_op):
        raise KeyboardInterrupt
    forgotten = Attempt(folder, lease(folder, "job 4"), no_op)
    forgotten.take()
    storage.delete_file(f"{folder}/lease.json")
    with pytest.raises(TakenOver, match=r"was taken over by whoever deleted lease.json: this attempt \(4\) stops"):
        forgotten.begin(0)


def test_a_lease_that_is_lost_while_the_driver_ends_is_said_in_one_line(folder: str) -> None:
    lost = threading.Event()

    def end_run(error: TakenOver) -> None:
        lost.set()
        time.sleep(0.05)  # until the main thread waits for this one
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(TakenOver, match=r"was taken over by job 2 \(attempt 2\): this attempt \(1\) stops"):
        with attempted(folder, lease(folder, "job 1"), end_run, pytest.fail, every=0.01):
            storage.write_json(f"{folder}/lease.json", {"attempt": 2, "driver": "job 2", "holder": "b"})
            assert lost.wait(10)


def test_a_renewal_goes_on_after_the_store_was_away(folder: str) -> None:
    mine, renewed, failures = lease(folder, "job 1"), threading.Event(), iter((OSError("away"), OSError("away")))

    class Away(InStore):
        def write(self, content: bytes, version: dict[str, str] | None) -> dict[str, str]:
            if error := next(failures, None):
                raise error
            answer = super().write(content, version)
            renewed.set()
            return answer

    with attempted(folder, mine, pytest.fail, pytest.fail, every=0.01):
        mine.stored = Away(mine.stored.store, mine.stored.key)
        assert renewed.wait(10)


def test_a_driver_that_wakes_in_the_middle_of_a_checkpoint_publishes_and_deletes_nothing_that_counts(
    module, tiny_config: Pretrain, tiny_vocabulary, folder: str, server: Server, tmp_path: Path
) -> None:
    optimizer, lines = build_optimizer(AdamW(), module), list[str]()
    settings = replace(tiny_config, checkpoint=Checkpoints(keep=1))
    taken(folder, "job 1", 0)
    storage.publish(tmp_path, begun := checkpoints.folder_of(folder, 3, 1), {"step": 3})
    server.before["step-00000006-attempt-1/state.json"] = lambda: taken(folder, "job 2", 3)
    for step in (6, 9):
        with pytest.raises(TakenOver, match=r"was taken over by job 2 \(attempt 2\): this attempt \(1\) stops"):
            with Saver(folder, settings, tiny_vocabulary, lambda: None, pytest.fail, 1) as writer:
                writer.save(State(step=step, cursor=CURSOR), module, optimizer, wait=True)
    written = ["step-00000003-attempt-1", "step-00000006-attempt-1"]  # a lease cannot stop a plain put
    assert storage.children(f"{folder}/checkpoints") == written
    assert storage.read_json(f"{folder}/checkpoints/{written[1]}/manifest.json")["attempt"] == 1
    assert checkpoints.newest_sound(folder, lines.append) == begun == f"{folder}/checkpoints/{written[0]}"
    assert lines == [
        "ignoring what an attempt wrote beyond the step from which a later one counts: step 6 of attempt 1"
    ]
