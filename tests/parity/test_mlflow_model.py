"""The logged MLflow model, loaded as people load it: by its name, in a process of its own."""

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mlflow
import pandas as pd
import pytest
import torch
from mlflow.tracking import MlflowClient

from pipeline.errors import CheckpointError
from pipeline.export.registry import at, largest_difference, log
from pipeline.export.trained import load_trained
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.run import read_run, read_summary

transformers = pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
main: Callable[[list[str]], int] = runpy.run_path(str(ROOT / "jobs" / "export.py"))["main"]
TEXTS = ["kar [MASK] kand [MASK]!", "lost", "[MASK] kap"]
ASK = """
import json, sys
import mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(sys.argv[2])
texts = pandas.DataFrame({"text": json.loads(sys.argv[3])})
print(json.dumps([model.predict(texts, params={"top": 2}), model.predict(texts, params={"task": "embeddings"})]))
"""


@pytest.fixture(scope="module")
def uri(tiny_run: Path) -> str:
    """The MLflow of the run, after two exports under the name `tiny`."""
    for _ in range(2):
        assert main([str(tiny_run), "--kinds", "mlflow", "--register", "tiny"]) == 0
    return read_summary(str(tiny_run))["mlflow_uri"]


def test_every_export_is_a_version_of_the_run(uri: str, tiny_run: Path) -> None:
    client, run_id = MlflowClient(tracking_uri=uri, registry_uri=uri), read_run(str(tiny_run))["mlflow_run_id"]
    versions = sorted(client.search_model_versions("name='tiny'"), key=lambda version: int(version.version))
    assert [(int(version.version), version.run_id) for version in versions] == [(1, run_id), (2, run_id)]
    assert len(client.get_run(run_id).outputs.model_outputs) == 2 and client.get_run(run_id).info.status == "RUNNING"
    assert (tiny_run.parents[1] / "mlartifacts" / "models").is_dir() and not (ROOT / "mlruns").exists()


@pytest.mark.second
def test_it_answers_in_a_fresh_process(uri: str, tiny_run: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK, uri, "models:/tiny/2", json.dumps(TEXTS)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    blanks, vectors = json.loads(done.stdout.splitlines()[-1])
    folder = folder_of(str(tiny_run), 3)
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(folder),
        transformers.AutoModelForMaskedLM.from_pretrained(folder).eval(),
    )
    assert [len(guesses) for guesses in blanks] == [2, 0, 1]
    for text, guesses, vector in zip(TEXTS, blanks, vectors, strict=True):
        asked = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            output = model(**asked, output_hidden_states=True)
        assert vector == pytest.approx(output.hidden_states[-1][0].mean(0).tolist(), abs=1e-5)
        best = output.logits[0][asked["input_ids"][0] == tokenizer.mask_token_id].softmax(-1).topk(2)
        assert [[guess["token"] for guess in blank] for blank in guesses] == [
            tokenizer.convert_ids_to_tokens(entries) for entries in best.indices
        ]
        assert [guess["probability"] for blank in guesses for guess in blank] == pytest.approx(
            best.values.flatten().tolist(), abs=1e-6
        )


def test_nothing_in_it_is_pickled(uri: str, tiny_run: Path) -> None:
    files = [path.name for path in (tiny_run.parents[1] / "mlartifacts").rglob("*") if path.is_file()]
    assert (
        "served.py" in files
        and "model.safetensors" in files
        and not [name for name in files if name.endswith((".pkl", ".pickle", ".bin", ".pt"))]
    )


def test_an_empty_cell_of_a_csv_is_an_empty_text(uri: str) -> None:
    with at(uri):
        model = mlflow.pyfunc.load_model("models:/tiny/1")
    asked = {texts: model.predict(pd.DataFrame({"text": list(texts)}), params={"task": "embeddings"})[1]
             for texts in (("kar", float("nan")), ("kar", ""))}  # fmt: skip
    empty, given = asked.values()
    assert empty == given


def test_an_unknown_task_is_refused(uri: str) -> None:
    with at(uri):
        model = mlflow.pyfunc.load_model("models:/tiny/1")
    with pytest.raises(Exception, match=r"task \(translate\) must be one of fill-mask, embeddings"):
        model.predict(pd.DataFrame({"text": TEXTS}), params={"task": "translate"})


def test_answers_of_another_model_are_found_and_unlogged(uri: str, tiny_run: Path) -> None:
    other = load_trained(folder_of(str(tiny_run), 1))
    newest = folder_of(str(tiny_run), 3)
    client, run_id = MlflowClient(tracking_uri=uri), read_run(str(tiny_run))["mlflow_run_id"]
    with at(uri):
        model = mlflow.pyfunc.load_model("models:/tiny/1")
    assert (
        largest_difference(model, Path(newest), load_trained(newest))
        <= 1e-5
        < largest_difference(model, Path(newest), other)
    )
    experiment = client.get_run(run_id).info.experiment_id
    before = len(client.search_logged_models([experiment]))
    with pytest.raises(
        CheckpointError, match="answers differ from the checkpoint's by .* of the largest, more than 1e-05$"
    ):
        log(Path(newest), other, uri, run_id, 3)
    assert len(client.search_logged_models([experiment])) == before


def test_the_place_of_tracking_is_put_back(uri: str) -> None:
    before = mlflow.get_tracking_uri()
    with at(uri):
        assert mlflow.get_tracking_uri() == uri
    assert mlflow.get_tracking_uri() == before
