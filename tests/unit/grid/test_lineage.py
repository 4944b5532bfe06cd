"""Lineage of a checkpoint."""

import json
from pathlib import Path

import pytest

from pipeline.config.model import Model
from pipeline.files import storage
from pipeline.grid.lineage import lineage
from pipeline.saved.run import write_run
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial


@pytest.fixture
def initial(tiny_vocabulary: Vocabulary) -> Initial:
    return Initial(folder="/initial", fingerprint="abcd", model=Model(), vocabulary=tiny_vocabulary)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "tiny"
    write_run(str(folder), {"corpus.fingerprint": "0123"}, 10, "run-id", "/corpora/wiki")
    return folder


def tuned(folder: Path, trial: str, checkpoint: Path) -> Path:
    """A fine-tuned model's folder, as far as it says where it is from."""
    storage.write_json(str(folder / "task.json"), {"lineage": {"trial": trial, "checkpoint": str(checkpoint)}})
    return folder


@pytest.mark.parametrize("inner", ["export", "checkpoints/step-10", "exports/step-10/huggingface", "export/"])
def test_a_model_of_our_run_leads_to_its_corpus(run: Path, initial: Initial, inner: str) -> None:
    found = lineage(f"{run}/{inner}", initial)
    assert found.pop("checkpoint").rstrip("/") == f"{run}/{inner}".rstrip("/")
    assert found == {
        "encoder": "abcd",
        "pretraining_run": "run-id",
        "pretraining_folder": str(run),
        "corpus": "0123",
        "corpus_folder": "/corpora/wiki",
    }


@pytest.mark.parametrize("inner", ["", "other/step-10", "a/b/c/export"])
def test_another_folder_leads_nowhere(run: Path, initial: Initial, inner: str) -> None:
    assert set(lineage(f"{run}/{inner}", initial)) == {"checkpoint", "encoder"}


def test_fine_tuned_models_lead_through_one_another_to_the_run(run: Path, initial: Initial, tmp_path: Path) -> None:
    first = tuned(tmp_path / "finetune" / "mnli" / "model", "mnli-seed0-aa", run / "export")
    second = tuned(tmp_path / "finetune" / "rte" / "model", "rte-seed1-bb", first)
    found = lineage(str(second), initial)
    assert (
        found["finetuned_from"] == "rte-seed1-bb mnli-seed0-aa"
        and found["pretraining_run"] == "run-id"
        and found["checkpoint"] == str(second)
    )


def test_a_circle_ends(tmp_path: Path, initial: Initial) -> None:
    tuned(tmp_path / "a", "trial-a", tmp_path / "b")
    tuned(tmp_path / "b", "trial-b", tmp_path / "a")
    assert lineage(str(tmp_path / "a"), initial)["finetuned_from"] == "trial-a trial-b"


@pytest.mark.parametrize("damage", ["{", json.dumps({"identity": {}})])
def test_what_is_damaged_says_nothing(run: Path, initial: Initial, damage: str) -> None:
    (run / "run.json").write_text(damage)
    assert set(lineage(f"{run}/export", initial)) == {"checkpoint", "encoder"}
