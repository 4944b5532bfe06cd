"""The tracker against a real MLflow store: a SQLite file, whose table of metrics is renamed where the server is to be
away.
"""

import getpass
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from pipeline.corpus.prepared import Corpus, Window
from pipeline.errors import ConfigError, DataError, TakenOver
from pipeline.files.locations import sqlite_file, sqlite_uri
from pipeline.tracking import tracker as tracker_module
from pipeline.tracking.curves import DPI, LEARNING_CURVE, THROUGHPUT, pictures
from pipeline.tracking.drivers import machine
from pipeline.tracking.failures import failure_of
from pipeline.tracking.runs import (
    DESCRIPTION,
    DRIVER,
    MlflowRun,
    corpus_inputs,
    end_killed,
    experiments,
    open_run,
    tracking_uri,
)
from pipeline.tracking.tracker import Tracker
from pipeline.tracking.views import pages

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
        monkeypatch.setattr(tracker_module, name, 0.02)


@pytest.fixture
def away(uri: str) -> Iterator[Callable[[bool], None]]:
    """Take the store's metrics away, or bring them back."""

    def move(gone: bool) -> None:
        with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
            database.execute(
                "ALTER TABLE metrics RENAME TO elsewhere" if gone else "ALTER TABLE elsewhere RENAME TO metrics"
            )

    yield move
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
        gone = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'elsewhere'").fetchone()[0]
    if gone:
        move(False)


def points(run: MlflowRun) -> dict[str, list[tuple[int, float]]]:
    """Metric -> (step, value) of all points that arrived, in the order of steps."""
    client = MlflowClient(tracking_uri=run.uri)
    keys = client.get_run(run.run_id).data.metrics
    return {
        key: sorted((point.step, point.value) for point in client.get_metric_history(run.run_id, key)) for key in keys
    }


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
    end_killed(uri, "killed", {"another - 99999999 1"})
    assert [status(run) for run in runs] == ["RUNNING", "KILLED", "RUNNING", "KILLED", "FINISHED", "RUNNING"]
    end_killed(uri, "missing", {"another - 99999999 1"})


def test_two_starts_may_create_an_experiment_at_the_same_time(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second start creates the experiment after the first start has looked for it."""
    find, unseen = MlflowClient.get_experiment_by_name, ["both"]

    def find_first_time(client: MlflowClient, name: str) -> object:
        if name in unseen:
            unseen.remove(name)
            open_run(uri, name, "second", None, {}, {})
            return None
        return find(client, name)

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", find_first_time)
    first = open_run(uri, "both", "first", None, {}, {})
    runs = MlflowClient(tracking_uri=uri).search_runs([str(first.experiment_id)])
    assert {run.info.run_name for run in runs} == {"first", "second"}


def test_a_run_says_from_its_start_what_it_is_and_what_started_it(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["jobs/pretrain.py", "bert-tiny", "--corpus", "s3://key:word@bucket/x"])
    opened = open_run(uri, "experiment", "described", None, {}, {DESCRIPTION: "what it is"})
    tags = MlflowClient(tracking_uri=uri).get_run(opened.run_id).data.tags
    wanted = {
        DESCRIPTION: "what it is",
        "mlflow.source.name": "jobs/pretrain.py",
        "command": "jobs/pretrain.py bert-tiny --corpus 's3://***@bucket/x'",
    }
    assert wanted.items() <= tags.items()
    in_git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert (
        tags.get("mlflow.source.git.commit", "") == in_git.stdout.strip() and tags["mlflow.user"] == getpass.getuser()
    )


def test_a_corpus_is_logged_as_two_data_sets(uri: str, tmp_path: Path) -> None:
    windows = tuple(Window(shard="s", row_group=number, documents=1, characters=100) for number in range(5))
    sources = {"https://me:word@host/a.txt::language=de": {}, "/texts/b/": {}}
    corpus = Corpus(
        folder="s3://key:word@bucket/corpus",
        fingerprint="f" * 64,
        train=windows[:3],
        heldout=windows[3:],
        counts={},
        dropped={},
        sources=sources,
    )
    opened = open_run(uri, "experiment", "fed", None, {}, {}, corpus_inputs(corpus))
    found = MlflowClient(tracking_uri=uri).get_run(opened.run_id).inputs.dataset_inputs
    assert {one.tags[0].value: (one.dataset.name, one.dataset.digest, one.dataset.source_type) for one in found} == {
        "training": ("a.txt, b", "f" * 36, "s3"),
        "evaluation": ("a.txt, b (held-out)", "f" * 36, "s3"),
    }
    assert {one.tags[0].value: json.loads(one.dataset.profile) for one in found} == {
        "training": {"windows": 3, "characters": 300},
        "evaluation": {"windows": 2, "characters": 200},
    }
    assert {one.dataset.source for one in found} == {
        '{"uri": "s3://***@bucket/corpus", "sources": ["https://***@host/a.txt::language=de", "/texts/b/"]}'
    }
    many = replace(
        corpus,
        folder=str(tmp_path),
        heldout=(),
        sources={f"/a/{number}-{'x' * 200}.txt": {} for number in range(2_000)},
    )
    (one,) = corpus_inputs(many)
    assert (len(one.dataset.name), one.dataset.source_type) == (500, "local") and len(one.dataset.source) < 65_535
    open_run(uri, "experiment", "fed by many", None, {}, {}, [one])


def artifacts(run: MlflowRun) -> Path:
    return Path(MlflowClient(tracking_uri=run.uri).get_run(run.run_id).info.artifact_uri.removeprefix("file://"))


def png(points: dict[str, dict[int, float]], name: str, path: str) -> bytes:
    """A picture of these points, as it is written."""
    pictures(name, points)[path].savefig(written := BytesIO(), dpi=DPI)
    return written.getvalue()


def test_pictures_show_the_whole_run_after_each_checkpoint_and_a_restart(new_run: NewRun, quick: None) -> None:
    run, first, second = new_run("drawn"), Tracker("job 1"), Tracker("job 2")
    files = [artifacts(run) / LEARNING_CURVE, artifacts(run) / THROUGHPUT]

    def metrics(step: int) -> dict[str, float]:
        return {
            "train/mlm_loss": 8.0 - step / 10,
            "speed/tokens_per_second": 100.0 * step,
            "speed/data_wait_percent": 1.0 * step,
        }

    first.start(run)
    first.log(0, {"heldout/mlm_loss": 8.0, "heldout_baseline/unigram_mlm_loss": 6.5})
    first.flush()
    deadline = time.monotonic() + 30
    while first.pictures_due.is_set() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)  # what is being drawn has read its points
    first.log(10, metrics(10))
    first.log(20, metrics(20))
    time.sleep(0.2)
    assert not any(file.exists() for file in files)  # no checkpoint yet but one before the first step
    first.flush()
    deadline = time.monotonic() + 30
    while not all(file.exists() for file in files) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert all(file.exists() for file in files)
    first.finish("FAILED")  # waits for what is being drawn
    half = [file.read_bytes() for file in files]
    second.start(run)
    second.log(30, metrics(30))
    second.finish("FINISHED")
    logged = {key: dict(values) for key, values in points(run).items()}
    assert sorted(logged["train/mlm_loss"]) == [10, 20, 30]
    assert (
        [file.read_bytes() for file in files]
        == [png(logged, "drawn", path) for path in (LEARNING_CURVE, THROUGHPUT)]
        != half
    )
    before = {key: {step: value for step, value in values.items() if step <= 20} for key, values in logged.items()}
    assert half == [png(before, "drawn", path) for path in (LEARNING_CURVE, THROUGHPUT)]
    assert first.take_messages() == second.take_messages() == []


def test_failed_pictures_are_reported_once_and_do_not_stop_training(new_run: NewRun, quick: None) -> None:
    run, tracker = new_run("pictures_due"), Tracker("job 1")
    tracker.start(run)
    artifacts(run).parent.mkdir(parents=True, exist_ok=True)
    artifacts(run).write_text("in the way")
    tracker.log(10, {"train/mlm_loss": 8.0})
    for _ in range(2):
        tracker.flush()
        deadline = time.monotonic() + 30
        while tracker.pictures_due.is_set() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert tracker.finish("FINISHED") is None
    assert [message.split(":")[0] for message in tracker.take_messages()] == [
        "the pictures could not be logged to MLflow"
    ]
    assert points(run) == {"train/mlm_loss": [(10, 8.0)]} and status(run) == "FINISHED"


def test_points_arrive_once(new_run: NewRun, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "METRICS_A_CALL", 3)
    run, tracker = new_run("points"), Tracker("job 1")
    tracker.start(run)
    for step in range(1, 5):
        tracker.log(step, {"train/loss": 1 / step, "stream/tokens": 10.0 * step})
    tracker.log(
        2, {"train/loss": 9.0, "heldout/mlm_loss": 4.5}
    )  # the loss of step 2 is there, the held-out loss is not
    assert tracker.finish("FINISHED") is None
    assert points(run) == {
        "train/loss": [(1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.25)],
        "stream/tokens": [(1, 10.0), (2, 20.0), (3, 30.0), (4, 40.0)],
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
    assert [second.missing_losses(steps, every) for steps, every in ((3, 1), (5, 1), (5, 2), (0, 1))] == [0, 2, 1, 0]


def test_steps_that_were_never_to_be_logged_are_not_missing(new_run: NewRun, quick: None) -> None:
    run, tracker = new_run("extended"), Tracker("job")
    tracker.start(run)
    for step in (40, 60):  # the MLflow run began at step 40
        tracker.log(step, {"train/loss": 1.0})
    assert tracker.missing_losses(70, 10) == 2
    tracker.every = "20"
    assert [tracker.missing_losses(70, every) for every in (10, 20)] == [0, 0]
    tracker.finish("FINISHED")


def test_points_logged_while_the_server_is_away_arrive_later(
    new_run: NewRun, quick: None, away: Callable[[bool], None]
) -> None:
    run, tracker = new_run("away"), Tracker("job 1")
    tracker.start(run)
    away(True)
    tracker.log(1, {"train/loss": 3.0})
    while not (messages := tracker.take_messages()):  # until it has tried
        time.sleep(0.01)
    tracker.log(2, {"train/loss": 2.0})
    assert (
        len(messages) == 1
        and messages[0].startswith("MLflow does not answer, so points are kept and sent later: ")
        and "\n" not in messages[0]
    )
    away(False)
    assert tracker.finish("FINISHED") is None
    assert points(run) == {"train/loss": [(1, 3.0), (2, 2.0)]} and status(run) == "FINISHED"
    assert tracker.take_messages() == []  # said once, not at every try


def test_what_a_server_never_took_is_said_at_the_end(
    new_run: NewRun, quick: None, away: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker_module, "LAST_FLUSH_SECONDS", 0.0)
    run, tracker = new_run("lost"), Tracker("job 1")
    tracker.start(run)
    away(True)
    tracker.log(1, {"train/loss": 3.0, "stream/tokens": 10.0})
    lost = tracker.finish("FINISHED")
    away(False)
    assert lost.startswith("MLflow is unavailable (") and lost.endswith("): 2 points are lost") and "\n" not in lost
    assert points(run) == {}


def test_tags_are_set_and_a_lost_one_stops_nothing(new_run: NewRun, quick: None, uri: str) -> None:
    run, tracker = new_run("tags"), Tracker("job 1")
    tracker.start(run)
    tracker.tag({"checkpoint": "/a/b"})
    assert MlflowClient(tracking_uri=uri).get_run(run.run_id).data.tags["checkpoint"] == "/a/b"
    MlflowClient(tracking_uri=uri).delete_run(run.run_id)
    tracker.tag({"export": "/c", "a": "b"})
    assert [message.split(":")[0] for message in tracker.take_messages()] == [
        "the tags ['a', 'export'] could not be logged to MLflow"
    ]
    tracker.finish("KILLED")


def test_the_mlflow_run_is_left_to_the_driver_that_took_the_run_over(new_run: NewRun, quick: None, uri: str) -> None:
    run, tracker = new_run("overtaken"), Tracker("job 1")
    tracker.start(run)
    tracker.fail(failure_of(error := TakenOver("by job 2"), "the driver"))
    tracker.log(10, {"train/loss": 3.0})
    tracker.flush()
    assert tracker.finish("KILLED") is None and tracker.failure() is error
    assert status(run) == "RUNNING" and MlflowClient(tracking_uri=uri).get_run(run.run_id).data.metrics == {}


def test_pictures_of_the_driver_are_logged_and_a_lost_one_stops_nothing(new_run: NewRun, quick: None) -> None:
    run, tracker = new_run("added"), Tracker("job 1")
    tracker.start(run)
    tracker.add_pictures({"pictures/a.png": b"PNG a", "pictures/b.png": b"PNG b"})
    assert {file.name: file.read_bytes() for file in (artifacts(run) / "pictures").iterdir()} == {
        "a.png": b"PNG a",
        "b.png": b"PNG b",
    }
    (artifacts(run) / "other").write_text("in the way of a folder")
    tracker.add_pictures({"other/b.png": b"PNG b", "pictures/a.png": b"PNG a"})
    assert [message.split(":")[0] for message in tracker.take_messages()] == [
        "the pictures ['other/b.png', 'pictures/a.png'] could not be logged to MLflow"
    ]
    assert tracker.finish("FINISHED") is None and status(run) == "FINISHED"


def test_what_the_driver_asks_for() -> None:
    tracker = Tracker("job 1, process 2")
    assert (tracker.owner(), tracker.progress(), tracker.failure(), tracker.summary()) == (
        "job 1, process 2",
        None,
        None,
        None,
    )
    tracker.log(10, {"train/loss": 3.0})
    tracker.log(10, {"heldout/mlm_loss": 4.0})
    assert tracker.progress() == (10, {"train/loss": 3.0})
    tracker.begin()
    tracker.fail(failure_of(RuntimeError("broken"), "worker 0"))
    tracker.begin()
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


def test_the_uri_is_the_setting_the_environment_or_a_file_beside_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracking_uri(None, "out") == f"sqlite:///{tmp_path}/out/mlflow.db"
    assert tracking_uri(None, "/out/") == "sqlite:////out/mlflow.db"
    assert tracking_uri("sqlite:///mine.db", "out") == f"sqlite:///{tmp_path}/mine.db"
    assert tracking_uri("sqlite:////a/mine.db", "out") == "sqlite:////a/mine.db"
    with_options = "sqlite:////a/mine.db?timeout=30"
    assert tracking_uri(with_options, "out") == with_options and sqlite_file(with_options) == "/a/mine.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server:5000")
    assert tracking_uri(None, "out") == "http://server:5000" == tracking_uri(None, "s3://bucket/x")
    assert tracking_uri("http://other:1", "out") == "http://other:1"


def test_signs_in_the_name_of_an_output_lead_nowhere_else_and_a_moved_output_has_its_artifacts(tmp_path: Path) -> None:
    output, moved = tmp_path / "a#b?c%20d é&", tmp_path / "moved#2"
    uri = tracking_uri(sqlite_uri(f"{output}/mlflow.db"), "unused")
    assert uri == f"sqlite:///{tmp_path}/a#b%3Fc%2520d é&/mlflow.db" and sqlite_file(uri) == f"{output}/mlflow.db"
    first = open_run(uri, "experiment", "first", None, {}, {})
    MlflowClient(tracking_uri=uri).log_text(first.run_id, "kept", "kept.txt")
    assert [path.name for path in tmp_path.iterdir()] == [output.name]
    assert {path.name for path in output.iterdir()} == {"mlartifacts", "mlflow.db"}

    shutil.move(output, moved)
    uri = sqlite_uri(f"{moved}/mlflow.db")
    second = open_run(uri, "experiment", "second", None, {}, {})
    client = MlflowClient(tracking_uri=uri)
    client.log_text(second.run_id, "new", "new.txt")
    assert (
        client.get_run(first.run_id).info.artifact_uri
        == f"file://{tmp_path}/moved%232/mlartifacts/{first.run_id}/artifacts"
    )
    assert [path.name for path in tmp_path.iterdir()] == [moved.name]
    assert sorted(path.name for path in moved.rglob("*.txt")) == ["kept.txt", "new.txt"]


def test_a_store_in_a_folder_that_cannot_be_written_to_is_read(new_run: NewRun, uri: str) -> None:
    new_run("read")
    nobody = 65534 if os.geteuid() == 0 else os.geteuid()  # root may write anywhere
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(str(sqlite_file(uri)), folder)
        os.chmod(folder, 0o555)
        os.seteuid(nobody)
        try:
            found = experiments(f"sqlite:///{folder}/mlflow.db")
        finally:
            os.seteuid(os.getuid())
            os.chmod(folder, 0o755)
    assert "experiment" in found.values()


def test_a_deleted_experiment_is_restored(uri: str) -> None:
    first = open_run(uri, "deleted", "first", None, {}, {})
    client = MlflowClient(tracking_uri=uri)
    client.delete_experiment(str(first.experiment_id))
    again = open_run(uri, "deleted", "second", None, {}, {})
    assert again.experiment_id == first.experiment_id and status(again) == "RUNNING"


def test_a_file_cannot_lie_beside_an_output_behind_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ConfigError) as refused:
        tracking_uri(None, "s3://bucket/x")
    assert str(refused.value) == (
        "tracking.uri is not set and output (s3://bucket/x) is not a local folder: "
        "start a server (mlflow server) and set MLFLOW_TRACKING_URI, "
        "or give sqlite:////a/local/mlflow.db"
    )


@pytest.mark.timeout(60)  # MLflow's own patience is minutes
def test_a_server_that_does_not_answer_is_one_line() -> None:
    with pytest.raises(ConfigError) as refused:
        open_run("http://127.0.0.1:9", "experiment", "name", None, {}, {})
    assert str(refused.value).startswith("tracking.uri (http://127.0.0.1:9) does not work: ") and "\n" not in str(
        refused.value
    )


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
    assert str(refused.value).startswith(f"tracking.uri (sqlite:///{copy}) does not work: ") and "\n" not in str(
        refused.value
    )
    assert str(refused.value).endswith("; repair it or move it away, and the same command continues")


def test_the_pages_of_experiments_open_the_view_of_training(tmp_path: Path, new_run: NewRun, uri: str) -> None:
    missing = f"sqlite:///{tmp_path}/mlflow.db"
    assert pages(missing, "5001") == [f"  http://127.0.0.1:5001  (no run is tracked in {missing} yet)"] and not any(
        tmp_path.iterdir()
    )
    new_run("first")
    (number,) = [number for number, name in experiments(uri).items() if name == "experiment"]
    (line,) = [line for line in pages(uri, "5001") if line.startswith("  experiment ")]
    assert line.split() == [
        "experiment",
        f"http://127.0.0.1:5001/#/experiments/{number}/runs?workflowType=machine_learning",
    ]
    assert "Default" not in experiments(uri).values()


@pytest.mark.second
def test_two_processes_create_one_sqlite_file_at_the_same_time(tmp_path: Path) -> None:
    code = (
        "import sys; from pipeline.tracking.runs import open_run; "
        "print('ready', flush=True); input(); print(open_run(sys.argv[1], 'pretrain', 'run', None, {}, {}).run_id)"
    )
    command, pipe = [sys.executable, "-c", code, f"sqlite:///{tmp_path}/new/mlflow.db"], subprocess.PIPE
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert len({out for out, _ in answers}) == 2
