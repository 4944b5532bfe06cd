"""A run of a BERT with other parts: what its export says, and that our own jobs read it."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import api
from pipeline.config.jobs import Pretrain
from pipeline.config.model_parts import LocalAttention, RotaryPositions
from pipeline.corpus.prepared import Corpus
from pipeline.errors import ConfigError
from pipeline.export.publish import require_kinds
from pipeline.export.trained import load_trained
from pipeline.presets.table import PRESETS
from pipeline.text.vocabulary import Vocabulary
from tests.conftest import finished_run

main = runpy.run_path(str(Path(__file__).parents[3] / "jobs" / "export.py"))["main"]


@pytest.fixture(scope="module")
def run(tiny_config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path_factory) -> Path:
    parts = {"block": "pre-norm", "inner": "geglu", "bias": False, "positions": RotaryPositions(local_theta=5_000.0)}
    model = replace(tiny_config.model, attention=LocalAttention(window=8), **parts)
    config = replace(tiny_config, model=model)
    return finished_run(tmp_path_factory.mktemp("parts"), config, tiny_corpus, tiny_vocabulary)


def test_the_export_says_that_transformers_cannot_load_it_and_ours_does(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), "--folder", str(tmp_path)]) == 0
    said = "not checked against transformers, which has no such architecture: only bertstream loads this model"
    assert capsys.readouterr().out == f"huggingface: {tmp_path}/huggingface; {said}\n"
    card = (tmp_path / "huggingface" / "README.md").read_text()
    assert f"This folder holds a format that only `bertstream` reads; {said}." in card
    assert "`transformers` cannot load this model, because it has no such architecture:" in card
    assert "library_name: bertstream" in card and "from transformers" not in card and "sentence_tr" not in card
    assert "A modified BERT encoder with" in card
    model = api.load(str(tmp_path / "huggingface"))
    assert model.settings == load_trained(str(tmp_path / "huggingface")).model
    assert model.settings.block == "pre-norm" and model.settings.attention == LocalAttention(window=8)
    assert model.embed(["kar kand", "lost"]).shape == (2, model.settings.width)
    tuned = model.fit(["kar", "lost"] * 8, ["a", "b"] * 8, epochs=1)
    tuned.save(str(tmp_path / "tuned"))
    assert api.load(str(tmp_path / "tuned")).predict(["kar"]) == tuned.predict(["kar"])


def test_transformers_refuses_it(run: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    assert main([str(run), "--folder", str(tmp_path)]) == 0
    with pytest.raises(ValueError, match="bertstream"):
        transformers.AutoModel.from_pretrained(tmp_path / "huggingface")


def test_graphs_are_refused_before_anything_is_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), "--folder", str(tmp_path), "--kinds", "huggingface", "onnx", "int8"]) == 2
    assert capsys.readouterr().err == (
        "error: kinds (onnx, int8) need an architecture that transformers has, but model.positions (rotary-positions) "
        "is of no published bert: choose huggingface\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_graphs_of_an_architecture_that_cannot_be_traced_are_refused() -> None:
    require_kinds(("huggingface",), PRESETS["longformer-tiny"])
    with pytest.raises(ConfigError) as refused:
        require_kinds(("onnx", "int8"), PRESETS["longformer-tiny"])
    assert str(refused.value) == (
        "kinds (onnx, int8) need a graph, but operators of transformers' Longformer depend on the values of its "
        "inputs: choose huggingface"
    )
