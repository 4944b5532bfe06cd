"""Grids and trials in a real MLflow store: a SQLite file, whose table of metrics is renamed where the server is to be
away.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from pipeline.config.finetune import Finetune
from pipeline.config.flat import flatten
from pipeline.config.model import Model
from pipeline.errors import ConfigError
from pipeline.export.registry import at
from pipeline.finetune.table import Reported
from pipeline.finetune.trials import Trial
from pipeline.grid import runs
from pipeline.grid.runs import (
    GridRun,
    end_run_with_status,
    log_scores,
    log_table,
    log_trial,
    metric_name,
    metric_names,
    open_grid,
    points,
    record_run,
)
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial
from tests.conftest import new_store

CONFIG = Finetune(checkpoint="/models/bert", task=("mrpc",), data="/glue")
RESULT: dict[str, Any] = {
    "scores": {"dev": {"accuracy": 0.75, "f1": 0.5}, "dev-mismatched": {"accuracy": 0.7}},
    "tuned": {"thresholds": [0.4, 0.6], "f1_tuned_on_dev": 0.55},
    "collapsed": True,
    "curve": [[2, 0.9], [4, 0.5]],
    "epochs": [
        {"dev": {"accuracy": 0.5, "f1": 0.25}, "dev-mismatched": {"accuracy": 0.6}},
        {"dev": {"accuracy": 0.75, "f1": 0.5}, "dev-mismatched": {"accuracy": 0.7}},
    ],
    "best_epoch": 2,
    "steps": 4,
    "seconds": 2.5,
    "details": {
        "labels": ["no", "yes"],
        "confusion": [[3, 1], [0, 4]],
        "per_class": {
            "no": {"precision": 1.0, "recall": 0.75, "f1": 0.857, "count": 4.0},
            "yes": {"precision": 0.8, "recall": 1.0, "f1": 0.889, "count": 4.0},
        },
    },
}
STOPPED = {"stopped_after_epoch": 1, "score": 0.25, "chosen": {}, "stage": "select"}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One store for all tests here."""
    return new_store(tmp_path_factory.mktemp("mlflow"))


@pytest.fixture
def initial(tiny_vocabulary: Vocabulary) -> Initial:
    return Initial(folder="/initial", fingerprint="f" * 64, model=Model(), vocabulary=tiny_vocabulary)


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def grid(uri: str, initial: Initial, lines: list[str], request: pytest.FixtureRequest) -> GridRun:
    """A grid of the test's own, which says its lines to `lines`."""
    parent = open_grid(uri, CONFIG, f"{request.node.name}-0123abcd", initial)
    parent.say = lines.append
    return parent


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


class Live:
    """A stand-in for the live display that collects its lines."""

    def __init__(self, lines: list[str]) -> None:
        self.report = lines.append


def trial(number: int, seed: int = 7, stage: str = "report") -> Trial:
    return Trial(
        problem="mrpc",
        config=replace(CONFIG, seeds=5),
        seed=seed,
        name=f"mrpc-seed{seed}-{number:012x}",
        chosen={},
        stage=stage,
    )


def nested(parent: GridRun) -> list[Run]:
    """The runs in a grid's run."""
    client = MlflowClient(tracking_uri=parent.uri)
    experiment = client.get_experiment_by_name("finetune").experiment_id
    return client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent.run_id}'")


def history(parent: GridRun, run: Run, name: str) -> list[tuple[int, float]]:
    return [
        (point.step, point.value)
        for point in sorted(
            MlflowClient(tracking_uri=parent.uri).get_metric_history(run.info.run_id, name),
            key=lambda point: point.step,
        )
    ]


def artifacts(parent: GridRun, run_id: str) -> dict[str, Path]:
    client = MlflowClient(tracking_uri=parent.uri)
    return {one.path: Path(client.download_artifacts(run_id, one.path)) for one in client.list_artifacts(run_id)}


def test_a_grid_says_from_its_start_what_it_is_and_what_started_it(uri: str, initial: Initial) -> None:
    opened = open_grid(uri, CONFIG, "described-0a", initial)
    run = MlflowClient(tracking_uri=uri).get_run(opened.run_id)
    assert run.data.tags["mlflow.note.content"] == (
        "Fine-tuning **described-0a**\n\n| | |\n|---|---|\n| checkpoint | /models/bert |\n| tasks | mrpc |\n| models, "
        "when they are done | output/finetune |"
    )
    assert run.data.tags["command"] and opened.experiment_id == run.info.experiment_id


def test_a_grid_has_all_settings_and_its_name(grid: GridRun, uri: str) -> None:
    run = MlflowClient(tracking_uri=uri).get_run(grid.run_id)
    assert run.data.params == {name: str(value) for name, value in flatten(CONFIG).items()}
    assert run.info.run_name == run.data.tags["grid"] == "test_a_grid_has_all_settings_and_its_name-0123abcd"
    assert run.data.tags["checkpoint"] == "/models/bert" and run.data.tags["encoder"] == "f" * 64


def test_the_same_grid_goes_on_and_another_begins(uri: str, initial: Initial) -> None:
    client, name = MlflowClient(tracking_uri=uri), 'my file\'s "best"-00ff00ff'
    first = open_grid(uri, CONFIG, name, initial)
    client.set_terminated(first.run_id, "KILLED")
    assert open_grid(uri, CONFIG, name, initial).run_id == first.run_id
    assert client.get_run(first.run_id).info.status == "RUNNING"
    assert open_grid(uri, CONFIG, "other-00ff00ff", initial).run_id != first.run_id  # of the same digest
    client.delete_run(first.run_id)
    assert open_grid(uri, CONFIG, name, initial).run_id != first.run_id


def test_a_grid_whose_run_is_gone_from_mlflow_says_so(uri: str, tmp_path: Path, lines: list[str]) -> None:
    place, first, second = (
        str(tmp_path / "grid.mlflow.json"),
        GridRun(uri=uri, run_id="a" * 32),
        GridRun(uri=uri, run_id="b" * 32),
    )
    for one in (first, first):
        record_run(one, place, lines.append)
    assert lines == []
    record_run(second, place, lines.append)
    record_run(second, place, lines.append)
    assert lines == [
        f"MLflow ({uri}) does not have the run {'a' * 32}, to which this search was logged at {uri}: "
        "all trials, including finished ones, are logged to a new run"
    ]
    for damaged in ("", "[]", '{"uri": "x"}'):
        Path(place).write_text(damaged)
        record_run(second, place, lines.append)
    assert len(lines) == 1


def test_a_trial_is_a_nested_run_with_its_course(grid: GridRun, lines: list[str]) -> None:
    log_trial(grid, trial(1), RESULT)
    [run] = nested(grid)
    assert run.info.status == "FINISHED" and run.info.run_name == "mrpc-seed7-000000000001"
    assert run.info.end_time - run.info.start_time >= 2_500
    assert {name: run.data.params[name] for name in ("seed", "stage", "seeds", "recipe.epochs")} == {
        "seed": "7",
        "stage": "report",
        "seeds": "5",
        "recipe.epochs": "3",
    }
    assert history(grid, run, "train/loss") == [(2, 0.9), (4, 0.5)]
    assert history(grid, run, "dev/accuracy") == [(2, 0.5), (4, 0.75)] and history(
        grid, run, "dev-mismatched/accuracy"
    ) == [(2, 0.6), (4, 0.7)]
    single = {name: run.data.metrics[name] for name in ("tuned/f1_tuned_on_dev", "seconds", "collapsed", "best_epoch")}
    assert single == {"tuned/f1_tuned_on_dev": 0.55, "seconds": 2.5, "collapsed": 1.0, "best_epoch": 2.0}
    there = artifacts(grid, run.info.run_id)
    assert json.loads(there["per_class.json"].read_text()) == RESULT["details"]["per_class"]
    assert json.loads(there["tuned.json"].read_text())["thresholds"] == [0.4, 0.6]
    assert there["confusion.png"].read_bytes().startswith(b"\x89PNG") and lines == []


def test_a_trial_is_there_once(grid: GridRun, uri: str, initial: Initial) -> None:
    for _ in range(2):
        log_trial(grid, trial(1), RESULT)
    again = open_grid(uri, CONFIG, "test_a_trial_is_there_once-0123abcd", initial)
    log_trial(again, trial(1), RESULT)
    log_trial(again, trial(2), RESULT)
    assert again.run_id == grid.run_id and sorted(run.data.tags["trial"][-1] for run in nested(grid)) == ["1", "2"]


def test_a_trial_that_was_cut_off_is_logged_anew(grid: GridRun, uri: str) -> None:
    client = MlflowClient(tracking_uri=uri)
    log_trial(grid, trial(1), RESULT)
    [half] = nested(grid)
    client.update_run(half.info.run_id, status="RUNNING")
    grid.logged = None
    log_trial(grid, trial(1), RESULT)
    [run] = nested(grid)
    assert run.info.run_id != half.info.run_id and history(grid, run, "train/loss") == [(2, 0.9), (4, 0.5)]


def test_a_trial_that_was_stopped_says_when(grid: GridRun) -> None:
    log_trial(grid, trial(1, stage="select"), STOPPED)
    [run] = nested(grid)
    assert run.data.metrics == {"score": 0.25} and history(grid, run, "score") == [(1, 0.25)]
    assert (run.data.tags["stopped_early"], run.data.tags["stopped_after_epoch"], run.data.tags["stage"]) == (
        "True",
        "1",
        "select",
    )


def test_scores_of_an_earlier_epoch_that_was_kept_come_last() -> None:
    kept = RESULT | {"best_epoch": 1, "scores": RESULT["epochs"][0]}
    assert [(step, value) for name, step, value in points(kept) if name == "dev/accuracy"] == [
        (2, 0.5),
        (4, 0.75),
        (5, 0.5),
    ]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("dev/PER_f1", "dev/PER_f1"),
        ("dev/$ a%_f1", "dev/_ a__f1"),
        ("a/../b", "a/_/b"),
        ("//a", "_/_/a"),
        ("é: b", "é_ b"),
    ],
)
def test_names_of_metrics_are_made_legal(name: str, wanted: str) -> None:
    assert metric_name(name) == wanted


def test_names_that_differ_in_forbidden_characters_stay_distinct(grid: GridRun) -> None:
    assert metric_names(["dev/C#_f1", "dev/C+_f1", "dev/C__f1", "dev/$_f1"]) == {
        "dev/C#_f1": "dev/C_23_f1",
        "dev/C+_f1": "dev/C_2b_f1",
        "dev/C__f1": "dev/C__f1",
        "dev/$_f1": "dev/__f1",
    }
    scores = {"C#_f1": 0.25, "C+_f1": 0.75}
    assert [
        (name, value) for name, _, value in points(RESULT | {"epochs": [{"dev": scores}]}) if name[:3] == "dev"
    ] == [
        ("dev/C_23_f1", 0.25),
        ("dev/C_2b_f1", 0.75),
    ]
    log_scores(grid, "own", "test", scores)
    assert MlflowClient(tracking_uri=grid.uri).get_run(grid.run_id).data.metrics == {
        "own/test C_23_f1": 0.25,
        "own/test C_2b_f1": 0.75,
    }


def test_every_legal_name_is_taken(grid: GridRun) -> None:
    odd = {"a//b": 0.1, ".": 0.2, "x" * 300: 0.3, "Größe $%§": 0.4}
    log_trial(grid, trial(1), RESULT | {"epochs": [{"dev": odd}], "scores": {"dev": odd}, "best_epoch": 1})
    [run] = nested(grid)
    assert sorted(value for name, value in run.data.metrics.items() if name.startswith("dev/")) == [0.1, 0.2, 0.3, 0.4]


def test_what_is_away_stops_nothing_and_is_logged_later(
    grid: GridRun, lines: list[str], away: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "RETRY_SECONDS", 0.0)
    away(True)
    log_trial(grid, trial(1), RESULT)
    log_trial(grid, trial(2), RESULT)
    assert (
        len(lines) == 1
        and lines[0].startswith("MLflow does not answer, so trials are queued: ")
        and "\n" not in lines[0]
    )
    away(False)
    log_trial(grid, trial(3), RESULT)
    assert sorted(run.data.tags["trial"][-1] for run in nested(grid)) == ["1", "2", "3"] and all(
        run.info.status == "FINISHED" for run in nested(grid)
    )
    assert len(lines) == 1 and not grid.waiting


def test_a_server_that_is_away_is_not_asked_for_each_trial(grid: GridRun, away: Callable[[bool], None]) -> None:
    away(True)
    log_trial(grid, trial(1), RESULT)
    away(False)
    log_trial(grid, trial(2), RESULT)
    assert not [run for run in nested(grid) if run.info.status == "FINISHED"] and len(grid.waiting) == 2
    with end_run_with_status(grid, Live([])):
        pass
    assert len(nested(grid)) == 2 and not grid.waiting


def test_what_is_lost_is_said_at_the_end(grid: GridRun, lines: list[str], away: Callable[[bool], None]) -> None:
    away(True)
    with end_run_with_status(grid, Live(lines)):
        log_trial(grid, trial(1), RESULT)
        log_table(grid, "| a |", ROWS)
    assert [line.partition(":")[0] for line in lines[:2]] == [
        "MLflow does not answer, so trials are queued",
        "the table could not be logged to MLflow",
    ]
    assert lines[2].startswith("MLflow is unavailable (") and lines[2].endswith(
        "): 1 trials are not logged; run the same command again to log them"
    )


@pytest.mark.parametrize(
    ("error", "status"),
    [(None, "FINISHED"), (KeyboardInterrupt(), "KILLED"), (SystemExit(1), "KILLED"), (ValueError("x"), "FAILED")],
)
def test_a_grid_ends_as_its_work_does(grid: GridRun, uri: str, error: BaseException | None, status: str) -> None:
    def work() -> None:
        with end_run_with_status(grid, Live([])):
            if error:
                raise error

    if error:
        with pytest.raises(type(error)):
            work()
    else:
        work()
    assert MlflowClient(tracking_uri=uri).get_run(grid.run_id).info.status == status


ROWS = [
    Reported(task="mrpc", name="dev f1", values=(0.8, 0.9, 2 / 3), baseline=0.6, collapsed=1, setting=""),
    Reported(task="mrpc", name="dev exact", values=(0.5,), baseline=None, collapsed=0, setting="learning rate 0.1"),
]


def test_the_table_is_text_rows_and_metrics(grid: GridRun, uri: str) -> None:
    for _ in range(2):
        log_table(grid, "| a |", ROWS)
    client, there = MlflowClient(tracking_uri=uri), artifacts(grid, grid.run_id)
    run = client.get_run(grid.run_id)
    assert there["table.md"].read_text() == "| a |\n"
    assert there["scores.png"].read_bytes().startswith(b"\x89PNG")
    assert run.data.metrics == {
        "mrpc/dev f1/median": 0.8, "mrpc/dev f1/lowest": 2 / 3, "mrpc/dev f1/highest": 0.9, "mrpc/dev f1/baseline": 0.6,
        "mrpc/dev exact/median": 0.5, "mrpc/dev exact/lowest": 0.5, "mrpc/dev exact/highest": 0.5,
    }  # fmt: skip
    assert [len(client.get_metric_history(grid.run_id, name)) for name in run.data.metrics] == [
        1
    ] * 7  # the same again is no new point
    with at(uri):
        table = client.load_table(client.get_run(grid.run_id).info.experiment_id, "table.json", [grid.run_id])
    assert (
        table["lowest"].tolist() == [0.666667, 0.5]
        and table["median"].tolist() == [0.8, 0.5]
        and table["setting"].tolist() == ["", "learning rate 0.1"]
        and table["collapsed"].tolist() == [1, 0]
        and table["without a model"][0] == pytest.approx(0.6)  # MLflow reads it as 0.6000000000000001
    )


@pytest.mark.parametrize("name", ["a/b", "a:b", "it's", " "])
def test_a_name_that_cannot_be_registered_is_refused_at_once(name: str, uri: str, initial: Initial) -> None:
    with pytest.raises(ConfigError) as error:
        open_grid(uri, replace(CONFIG, register=name), "refused-00000000", initial)
    assert str(error.value) == f"register ({name}) must be a name without / : ' and \", such as my-model"


def test_a_store_that_does_not_work_is_one_line(tmp_path: Path, initial: Initial) -> None:
    (tmp_path / "mlflow.db").write_text(
        "this is no database, and longer than its header of a hundred bytes should be to be looked at in earnest"
    )
    with pytest.raises(ConfigError) as error:
        open_grid(f"sqlite:///{tmp_path}/mlflow.db", CONFIG, "broken-00000000", initial)
    assert str(error.value).startswith(
        f"mlflow_uri (sqlite:///{tmp_path}/mlflow.db) does not work: "
    ) and "\n" not in str(error.value)


def test_scores_of_a_test_file_are_metrics_of_the_grid(grid: GridRun) -> None:
    log_scores(grid, "my", "test", {"accuracy": 0.5, "auc": 0.75})
    found = MlflowClient(tracking_uri=grid.uri).get_run(grid.run_id).data.metrics
    assert (found["my/test accuracy"], found["my/test auc"]) == (0.5, 0.75)
