"""The tracker against a real MLflow store: a SQLite file, whose table of metrics is renamed where the server is to be away."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from pipeline.config.training import Tracking
from pipeline.errors import ConfigError, DataError
from pipeline.train import tracking
from pipeline.train.drivers import machine
from pipeline.train.failures import failure_of
from pipeline.train.tracking import DRIVER, MlflowRun, Tracker, open_run, tracking_uri

PARAMETERS = {f"setting.{number}": number for number in range(150)} | {"name": None, "corpus": ["a", "b"]}
NewRun = Callable[[str], MlflowRun]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database for all tests here: MLflow takes seconds to make its tables."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/new/mlflow.db"


@pytest.fixture
def new_run(uri: str) -> NewRun:
    return lambda name: open_run(uri, "experiment", name, None, PARAMETERS, {"corpus": "aaaa"})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLUSH_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(tracking, name, 0.02)


@pytest.fixture
def away(uri: str) -> Iterator[Callable[[bool], None]]:
    """Take the store's metrics away, or bring them back."""

    def move(gone: bool) -> None:
        with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
            database.execute("ALTER TABLE metrics RENAME TO elsewhere" if gone else "ALTER TABLE elsewhere RENAME TO metrics")

    yield move
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
        gone = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'elsewhere'").fetchone()[0]
    if gone:
        move(False)


def points(run: MlflowRun) -> dict[str, list[tuple[int, float]]]:
    """Metric -> (step, value) of all points that arrived, in the order of steps."""
    client = MlflowClient(tracking_uri=run.uri)
    keys = client.get_run(run.run_id).data.metrics
    return {key: sorted((point.step, point.value) for point in client.get_metric_history(run.run_id, key)) for key in keys}


def status(run: MlflowRun) -> str:
    return MlflowClient(tracking_uri=run.uri).get_run(run.run_id).info.status


def test_a_run_is_created_with_all_its_parameters_and_tags(new_run: NewRun, uri: str) -> None:
    opened = new_run("first")
    run = MlflowClient(tracking_uri=uri).get_run(opened.run_id)
    assert run.data.params == {key: str(value) for key, value in PARAMETERS.items()}
    assert run.info.run_name == "first" and run.info.status == "RUNNING" and run.data.tags["corpus"] == "aaaa"
    folder = str(Path(uri.removeprefix("sqlite:///")).parent)
    assert run.info.artifact_uri.startswith(f"file://{folder}/mlartifacts/")


def test_a_run_is_continued_while_the_store_has_it(new_run: NewRun, uri: str) -> None:
    opened = new_run("first")
    client = MlflowClient(tracking_uri=uri)
    client.set_terminated(opened.run_id, "FAILED")
    assert open_run(uri, "experiment", "first", opened.run_id, PARAMETERS, {}) == opened and status(opened) == "RUNNING"
    client.delete_run(opened.run_id)
    assert open_run(uri, "experiment", "first", opened.run_id, PARAMETERS, {}).run_id != opened.run_id
    assert open_run(uri, "experiment", "first", "0" * 32, PARAMETERS, {}).run_id not in (opened.run_id, "0" * 32)


def test_the_next_start_ends_the_runs_of_drivers_that_are_gone(uri: str) -> None:
    def opened(name: str, run_id: str | None = None) -> MlflowRun:
        return open_run(uri, "killed", name, run_id, {}, {})

    client, gone = MlflowClient(tracking_uri=uri), f"{machine()} 99999999 1"
    names = ("killed", "silent", "lives", "elsewhere", "finished", "other")
    killed, silent, lives, elsewhere, finished, other = runs = [opened(name) for name in names]
    for run, driver in ((killed, gone), (silent, gone), (elsewhere, "another - 99999999 1"), (finished, gone)):
        client.set_tag(run.run_id, DRIVER, driver)
    client.log_metric(killed.run_id, "train/loss", 1.0, timestamp=123_000, step=1)
    client.set_terminated(finished.run_id, "FINISHED")
    client.delete_tag(other.run_id, DRIVER)
    opened("next")
    assert [status(run) for run in runs] == ["KILLED", "KILLED", "RUNNING", "RUNNING", "FINISHED", "RUNNING"]
    assert client.get_run(killed.run_id).info.end_time == 123_000
    opened("killed", killed.run_id)  # goes on, driven by this process
    opened("after that")
    assert status(killed) == "RUNNING"


def test_points_arrive_once(new_run: NewRun, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "METRICS_A_CALL", 3)
    run, tracker = new_run("points"), Tracker("job 1")
    tracker.start(run)
    for step in range(1, 5):
        tracker.log(step, {"train/loss": 1 / step, "data/tokens": 10.0 * step})
    tracker.log(2, {"train/loss": 9.0, "heldout/mlm_loss": 4.5})  # the loss of step 2 is there, the held-out loss is not
    assert tracker.finish("FINISHED") is None
    assert points(run) == {
        "train/loss": [(1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.25)],
        "data/tokens": [(1, 10.0), (2, 20.0), (3, 30.0), (4, 40.0)],
        "heldout/mlm_loss": [(2, 4.5)],
    }
    assert status(run) == "FINISHED" and tracker.take_messages() == []


def test_a_second_tracker_drops_the_steps_that_are_there(new_run: NewRun, quick: None) -> None:
    run, first, second = new_run("resumed"), Tracker("job 1"), Tracker("job 2")
    first.start(run)
    first.log(1, {"train/loss": 3.0})
    first.log(2, {"train/loss": 2.0})
    first.finish("FAILED")
    assert status(run) == "FAILED"
    second.start(run)
    for step in (2, 3):
        second.log(step, {"train/loss": 1.0 * step + 10})
    second.finish("FINISHED")
    assert points(run) == {"train/loss": [(1, 3.0), (2, 2.0), (3, 13.0)]} and status(run) == "FINISHED"
    assert [second.lacks(steps, every) for steps, every in ((3, 1), (5, 1), (5, 2), (0, 1))] == [0, 2, 1, 0]


def test_points_logged_while_the_server_is_away_arrive_later(new_run: NewRun, quick: None, away: Callable[[bool], None]) -> None:
    run, tracker = new_run("away"), Tracker("job 1")
    tracker.start(run)
    away(True)
    tracker.log(1, {"train/loss": 3.0})
    while not (messages := tracker.take_messages()):  # until it has tried
        time.sleep(0.01)
    tracker.log(2, {"train/loss": 2.0})
    assert len(messages) == 1 and messages[0].startswith("MLflow does not answer, points are kept: ") and "\n" not in messages[0]
    away(False)
    assert tracker.finish("FINISHED") is None
    assert points(run) == {"train/loss": [(1, 3.0), (2, 2.0)]} and status(run) == "FINISHED"
    assert tracker.take_messages() == []  # said once, not at every try


def test_what_a_server_never_took_is_said_at_the_end(
    new_run: NewRun, quick: None, away: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "LAST_FLUSH_SECONDS", 0.0)
    run, tracker = new_run("lost"), Tracker("job 1")
    tracker.start(run)
    away(True)
    tracker.log(1, {"train/loss": 3.0, "data/tokens": 10.0})
    lost = tracker.finish("FINISHED")
    away(False)
    assert lost.startswith("MLflow is away (") and lost.endswith("): 2 points are lost") and "\n" not in lost
    assert points(run) == {}


def test_tags_are_set_and_a_lost_one_stops_nothing(new_run: NewRun, quick: None, uri: str) -> None:
    run, tracker = new_run("tags"), Tracker("job 1")
    tracker.start(run)
    tracker.tag({"checkpoint": "/a/b"})
    assert MlflowClient(tracking_uri=uri).get_run(run.run_id).data.tags["checkpoint"] == "/a/b"
    MlflowClient(tracking_uri=uri).delete_run(run.run_id)
    tracker.tag({"export": "/c", "a": "b"})
    assert [message.split(":")[0] for message in tracker.take_messages()] == ["MLflow did not take the tags ['a', 'export']"]
    tracker.finish("KILLED")


def test_what_the_driver_asks_for() -> None:
    tracker = Tracker("job 1, process 2")
    assert (tracker.owner(), tracker.progress(), tracker.failure(), tracker.summary()) == ("job 1, process 2", None, None, None)
    tracker.log(10, {"train/loss": 3.0})
    tracker.log(10, {"heldout/mlm_loss": 4.0})
    assert tracker.progress() == (10, {"train/loss": 3.0})
    tracker.begin(0)
    tracker.fail(failure_of(RuntimeError("broken"), "worker 0"))
    tracker.begin(0)
    assert tracker.failure() is None
    tracker.fail(failure_of(first := DataError("a"), "worker 0"))
    tracker.fail(failure_of(ConfigError("b"), "worker 1"))
    assert tracker.failure() is first
    tracker.result({"steps": 10})
    assert tracker.summary() == {"steps": 10}
    tracker.say("one")
    tracker.say("two")
    failed = "worker 0 failed: RuntimeError: broken; the workers start again, as often as placement.restarts allows"
    assert tracker.take_messages() == [failed, "one", "two"] and tracker.take_messages() == []
    assert tracker.finish("FINISHED") is None  # never started: nothing to close


def test_the_uri_is_the_setting_the_environment_or_a_file_beside_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracking_uri(Tracking(), "out") == f"sqlite:///{tmp_path}/out/mlflow.db"
    assert tracking_uri(Tracking(), "/out/") == "sqlite:////out/mlflow.db"
    assert tracking_uri(Tracking(uri="sqlite:///mine.db"), "out") == f"sqlite:///{tmp_path}/mine.db"
    assert tracking_uri(Tracking(uri="sqlite:////a/mine.db"), "out") == "sqlite:////a/mine.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server:5000")
    assert tracking_uri(Tracking(), "out") == "http://server:5000" == tracking_uri(Tracking(), "s3://bucket/x")
    assert tracking_uri(Tracking(uri="http://other:1"), "out") == "http://other:1"


def test_a_file_cannot_lie_beside_an_output_behind_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ConfigError) as refused:
        tracking_uri(Tracking(), "s3://bucket/x")
    assert str(refused.value) == (
        "tracking.uri is not set and output (s3://bucket/x) is no local folder: start a server (mlflow server) and set MLFLOW_TRACKING_URI, "
        "or give sqlite:////a/local/mlflow.db"
    )


@pytest.mark.timeout(60)  # MLflow's own patience is minutes
def test_a_server_that_does_not_answer_is_one_line() -> None:
    with pytest.raises(ConfigError) as refused:
        open_run("http://127.0.0.1:9", "experiment", "name", None, {}, {})
    assert str(refused.value).startswith("tracking.uri (http://127.0.0.1:9) does not work: ") and "\n" not in str(refused.value)


@pytest.mark.parametrize("uri", ["nonsense://x", "sqlite:////dev/null/mlflow.db"])
def test_a_place_that_cannot_be_is_one_line(uri: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_run(uri, "experiment", "name", None, {}, {})
    assert str(refused.value).startswith(f"tracking.uri ({uri}) does not work: ") and "\n" not in str(refused.value)


def damage_points(location: Path) -> None:
    """Overwrite the pages of a SQLite file where its table of newest points and its indices begin."""
    with closing(sqlite3.connect(location)) as database:
        size = database.execute("PRAGMA page_size").fetchone()[0]
        pages = database.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'latest_metrics'").fetchall()
    with open(location, "r+b") as stream:
        for (page,) in pages:
            stream.seek((page - 1) * size)
            stream.write(b"\xff" * size)


def test_a_store_that_is_damaged_when_the_tracker_starts_is_one_line(tmp_path: Path, new_run: NewRun, uri: str) -> None:
    opened = new_run("damaged")
    copy = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database, closing(sqlite3.connect(copy)) as other:
        database.backup(other)
    damage_points(copy)
    with pytest.raises(ConfigError) as refused:
        Tracker("me").start(MlflowRun(uri=f"sqlite:///{copy}", run_id=opened.run_id))
    assert str(refused.value).startswith(f"tracking.uri (sqlite:///{copy}) does not work: ") and "\n" not in str(refused.value)
    assert str(refused.value).endswith("; mend or move it, and the same command continues")
