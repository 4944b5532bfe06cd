"""Exports of a BigBird, whose attention is the same in transformers for short texts only."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import api
from pipeline.config.jobs import Pretrain
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.corpus.prepared import Corpus
from pipeline.text.vocabulary import Vocabulary
from tests.conftest import finished_run, parts_of_preset, tiny_preset

main = runpy.run_path(str(Path(__file__).parents[3] / "jobs" / "export.py"))["main"]


@pytest.fixture(scope="module")
def run(tiny_config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path_factory) -> Path:
    parts = parts_of_preset(tiny_preset("bigbird")) | {"attention": BlockSparseAttention(block_size=2, random_blocks=1)}
    config = replace(tiny_config, model=replace(tiny_config.model, **parts))
    return finished_run(tmp_path_factory.mktemp("blocks"), config, tiny_corpus, tiny_vocabulary)


def test_an_export_is_compared_on_texts_with_full_attention(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    assert main([str(run), "--folder", str(tmp_path)]) == 0
    said = "checked: logits of texts of up to 14 tokens equal transformers' within"
    assert said in capsys.readouterr().out
    assert said in (tmp_path / "huggingface" / "README.md").read_text()
    card = (tmp_path / "huggingface" / "README.md").read_text()
    assert "## Long texts\n\nIn a text of more than 14 tokens, tokens also attend to random blocks" in card
    model = api.load(str(tmp_path / "huggingface"))
    assert model.settings.attention == BlockSparseAttention(block_size=2, random_blocks=1)
    assert model.embed(["kar kand", "lost " * 20]).shape == (2, model.settings.width)


def test_graphs_are_refused_before_anything_is_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), "--folder", str(tmp_path), "--kinds", "onnx"]) == 2
    assert capsys.readouterr().err == (
        "error: kinds (onnx) cannot have model.attention block-sparse-attention, because transformers, which writes "
        "the graphs, has no random blocks in evaluation: choose huggingface\n"
    )
    assert list(tmp_path.iterdir()) == []
