"""Fine-tuned models in MLflow, as people use them: registered, loaded by name, and asked by `mlflow models predict`."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pyarrow as pa
import pytest
import requests
import torch
from mlflow.tracking import MlflowClient

from pipeline import api
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.locations import with_absolute_locations
from pipeline.config.model import Model
from pipeline.config.serve import Serve
from pipeline.config.task_kind import Kind
from pipeline.errors import CheckpointError, ConfigError
from pipeline.export import registry
from pipeline.export.registry import alike, at
from pipeline.fine_tuned.answers import answer_items, items_of
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.finetune.problems import Problem
from pipeline.grid.runs import GridRun, log_best, open_grid
from pipeline.objectives.chain import add_chain
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.tables.squad import Question
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import ENCODED, TEXTS
from pipeline.tasks.tagging import Sentence
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial
from pipeline.workflows.serve import _registered
from tests.conftest import new_store
from tests.unit.serve.test_routes import post, served

ROOT = Path(__file__).parents[2]
CONFIG = Finetune(checkpoint="/models/bert", task=("mrpc",), data="/glue", register="served")
LABELS: dict[str, tuple[str, ...]] = {
    "classification": ("no", "yes"),
    "multilabel": ("red", "green"),
    "tags": ("O", "B-PER", "I-PER"),
}
TEXT = pa.table([["0", "1"], ["kar lost, kand", "mir"], [None, "nel"], [None, None]], schema=TEXTS)
ITEMS: dict[str, Any] = {
    "tags": [Sentence(words=("kar", "lost"), tags=("O", "O")), Sentence(words=("mir",), tags=("O",))],
    "spans": [
        Question(id="q", question="kar?", context="lost kand, kar", answers=()),
        Question(id="r", question="mir?", context="7", answers=()),
    ],
}
COLUMNS = {"tags": ["text"], "spans": ["question", "context"]}
NAMES = {
    "classification": {"label": str, "probability": float, "probabilities": dict},
    "multilabel": {"labels": list, "probabilities": dict},
    "regression": {"score": float},
    "tags": {"words": list, "tags": list, "probabilities": list},
    "spans": {"answer": str, "start": int, "end": int, "probability": float},
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return new_store(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def parent(uri: str, tiny_vocabulary: Vocabulary) -> GridRun:
    return open_grid(
        uri,
        CONFIG,
        "grid-0123abcd",
        Initial(folder="/initial", fingerprint="f", model=Model(), vocabulary=tiny_vocabulary),
    )


def problem(kind: Kind) -> Problem:
    """A task's problem, with only the parts that the logging of the task's model reads."""
    rows = Prepared(items=ITEMS.get(kind, TEXT), rows=ENCODED.empty_table())
    return Problem(
        task=Task(name=kind, kind=kind, labels=LABELS.get(kind, ()), metrics=("f1",), unanswerable=kind == "spans"),
        cutting=Truncation(),
        train=rows,
        splits={"dev": rows},
        digest="",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_vocabulary: Vocabulary) -> Callable[..., str]:
    """The folder of a kind's model with weights at random; with `crf`, the same weights and a chain of tags."""
    output = tmp_path_factory.mktemp("finetune")

    def make(kind: Kind, crf: bool = False) -> str:
        target = str(output / f"{kind}{'-crf' if crf else ''}-seed0-0123456789ab" / "model")
        if not Path(target).exists():
            task, model = (
                problem(kind).task,
                Model(layers=2, width=32, heads=2, feed_forward=64, maximum_positions=32, initializer_deviation=0.5),
            )
            module = OBJECTIVES[kind](
                model, tiny_vocabulary.size, len(task.labels), torch.Generator().manual_seed(5), "cls", None
            )
            tuned = {"null_threshold": 1e9} if kind == "spans" else {}
            about = About(
                task=task,
                cutting=Truncation(maximum_length=24, stride=8, question_length=4),
                pooling="cls",
                thresholds=tuned,
                lineage={},
                crf=crf,
            )
            if crf:
                add_chain(module, task)
                with torch.no_grad():
                    module.tag_chain.following.normal_(std=2, generator=torch.Generator().manual_seed(1))
            save_tuned(target, module, about, model, tiny_vocabulary)
        return target

    return make


@pytest.mark.parametrize("kind", NAMES)
def test_the_best_model_is_registered_once_and_answers_as_its_folder(
    kind: Kind, parent: GridRun, folder: Callable[[Kind], str]
) -> None:
    lines: list[str] = []
    for _ in range(2):
        log_best(parent, CONFIG, problem(kind), kind, folder(kind), True, lines.append)
    assert [line.partition(";")[0] for line in lines] == [f"{kind}: registered as models:/served-{kind}/1"] * 2
    with at(parent.uri):
        served = mlflow.pyfunc.load_model(f"models:/served-{kind}/1")
    columns = {name: ["kar lost", "mir nel kand 12"] for name in COLUMNS.get(kind, ["text"])}
    found, tuned = served.predict(pd.DataFrame(columns)), open_tuned(folder(kind))
    ours = answer_items(
        tuned, items_of(tuned, columns), torch.device("cpu"), torch.autocast("cpu", enabled=False)
    ).to_pylist()
    assert (
        alike(ours, found)
        and [{name: type(value) for name, value in row.items()} for row in found] == [NAMES[kind]] * 2
    )
    assert [column.name for column in served.metadata.signature.outputs.inputs] == list(NAMES[kind])
    assert open_tuned(registry.folder_of(f"models:/served-{kind}/1", parent.uri)).about == tuned.about


def test_a_crf_answers_with_its_best_sequence(parent: GridRun, folder: Callable[..., str]) -> None:
    """The best tag of each word alone would be another answer."""
    model, texts = folder("tags", crf=True), ["kar lost mir nel", "mir nel kand 12"]
    log_best(parent, replace(CONFIG, register="crf"), problem("tags"), "tags", model, False, lambda line: None)
    with at(parent.uri):
        found = mlflow.pyfunc.load_model("models:/crf/1").predict(pd.DataFrame({"text": texts}))
    assert alike(api.load(model).predict(texts), found)
    alone = api.load(folder("tags")).predict(texts)
    assert [row["tags"] for row in found] != [row["tags"] for row in alone]


@pytest.mark.parametrize("of_mlflow", ["models:/named/1", "models:/named@best"])
def test_a_registered_model_is_served_by_its_name(
    of_mlflow: str, parent: GridRun, folder: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the settings of jobs/serve.py, with the MLflow of the environment or of the setting."""
    model = folder("classification")
    named = replace(CONFIG, register="named")
    log_best(parent, named, problem("classification"), "classification", model, False, lambda line: None)
    MlflowClient(tracking_uri=parent.uri, registry_uri=parent.uri).set_registered_model_alias("named", "best", "1")
    config = with_absolute_locations(_registered(Serve(checkpoint=of_mlflow, mlflow_uri=parent.uri), print))
    with served(config) as (url, _):
        found = post(f"{url}/predict", {"inputs": "kar lost"}).json()
        info = requests.get(f"{url}/info", timeout=30).json()
    (wanted,) = api.load(model).predict(["kar lost"])
    assert {one["label"]: pytest.approx(one["score"], abs=1e-6) for one in found} == wanted["probabilities"]
    assert info["model_id"] == of_mlflow.removeprefix("models:/")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", parent.uri)
    assert _registered(Serve(checkpoint=of_mlflow), print).checkpoint == config.checkpoint
    assert _registered(Serve(checkpoint=of_mlflow, name="mine"), print).name == "mine"


def test_a_model_that_mlflow_does_not_have_is_refused(parent: GridRun, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^checkpoint \(models:/none/1\) is not in sqlite:"):
        registry.folder_of("models:/none/1", parent.uri)
    with pytest.raises(ConfigError, match="names a file that does not exist"):
        registry.folder_of("models:/none/1", f"sqlite:///{tmp_path}/none.db")


def test_a_version_knows_its_trial_and_its_run(parent: GridRun, folder: Callable[[Kind], str]) -> None:
    log_best(
        parent,
        replace(CONFIG, register="one"),
        problem("regression"),
        "regression",
        folder("regression"),
        False,
        lambda line: None,
    )
    version = MlflowClient(tracking_uri=parent.uri, registry_uri=parent.uri).get_model_version("one", "1")
    assert version.tags == {"trial": "regression-seed0-0123456789ab"} and version.run_id == parent.run_id


def test_nothing_is_registered_where_no_name_is_given(parent: GridRun) -> None:
    lines: list[str] = []
    log_best(parent, replace(CONFIG, register=None), problem("spans"), "spans", "/nowhere/model", False, lines.append)
    assert lines == []


def test_other_answers_are_refused_and_unlogged(
    parent: GridRun, folder: Callable[[Kind], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = MlflowClient(tracking_uri=parent.uri)
    experiment = client.get_run(parent.run_id).info.experiment_id
    before, other = len(client.search_logged_models([experiment])), open_tuned(folder("regression"))
    for parameter in other.module.parameters():
        parameter.data.add_(0.01)
    monkeypatch.setattr(registry, "open_tuned", lambda folder: other)
    with pytest.raises(CheckpointError, match=r"^model models:/\S+: its answers differ from those of .*/model$"):
        log_best(
            parent,
            replace(CONFIG, register="wrong"),
            problem("regression"),
            "regression",
            folder("regression"),
            False,
            print,
        )
    assert len(client.search_logged_models([experiment])) == before


def test_a_registry_that_is_away_leaves_a_line(folder: Callable[[Kind], str], tmp_path: Path) -> None:
    lines: list[str] = []
    (tmp_path / "mlflow.db").write_text(
        "this is no database, and longer than its header of a hundred bytes should be to be looked at in earnest"
    )
    gone = GridRun(uri=f"sqlite:///{tmp_path}/mlflow.db", run_id="gone")
    log_best(gone, CONFIG, problem("regression"), "regression", folder("regression"), False, lines.append)
    assert (
        len(lines) == 1
        and lines[0].startswith("regression: the model served could not be registered in MLflow: ")
        and lines[0].endswith("/model; run the same command again to register it")
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ([{"a": 0.5, "b": None}], [{"a": 0.5 + 1e-7, "b": None}], True),
        ([{"a": 0.5}], [{"a": 0.501}], False),
        ([{"a": "x"}], [{"a": "y"}], False),
        ([{"a": 0.5}], [{"b": 0.5}], False),
        ([{"a": 0.5}], [{"a": 0.5}, {"a": 0.5}], False),
        ([0.5], [None], False),
    ],
)
def test_answers_are_alike_to_the_tolerance(ours: Any, theirs: Any, same: bool) -> None:
    assert alike(ours, theirs) == same


@pytest.mark.parametrize("before", [None, "sqlite:////elsewhere/mlflow.db"])
def test_what_was_not_set_is_not_set_afterwards(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        monkeypatch.delenv(name, raising=False)
        if before:
            monkeypatch.setenv(name, before)
    with at("sqlite:////inside/mlflow.db"):
        assert (
            mlflow.get_tracking_uri()
            == mlflow.get_registry_uri()
            == os.environ["MLFLOW_REGISTRY_URI"]
            == "sqlite:////inside/mlflow.db"
        )
    assert [os.environ.get(name) for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")] == [before, before]
    assert before is None or mlflow.get_registry_uri() == before
    mlflow.set_tracking_uri(None)  # a later test must not see it
    mlflow.set_registry_uri(None)


@pytest.mark.second
def test_the_command_line_answers_a_csv_file(parent: GridRun, folder: Callable[[Kind], str], tmp_path: Path) -> None:
    lines: list[str] = []
    log_best(
        parent,
        replace(CONFIG, register="by-command"),
        problem("classification"),
        "classification",
        folder("classification"),
        False,
        lines.append,
    )
    with (tmp_path / "input.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "second"], ["kar, lost", "nel"], ["12", ""], ["", ""]])
    said = lines[0].partition("in this environment: ")[2].replace("FILE.csv", "input.csv -o out.json")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        said,
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    tuned = open_tuned(folder("classification"))
    items = items_of(tuned, {"text": ["kar, lost", "12", ""], "second": ["nel", None, None]})
    ours = answer_items(tuned, items, torch.device("cpu"), torch.autocast("cpu", enabled=False)).to_pylist()
    assert alike(ours, json.loads((tmp_path / "out.json").read_text())["predictions"])
