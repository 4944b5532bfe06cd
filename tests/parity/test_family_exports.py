"""Exports of runs of RoBERTa and ELECTRA as transformers, onnxruntime and MLflow see them."""

import json
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch

from pipeline import api
from pipeline.config.data import Sampling
from pipeline.config.jobs import Pretrain
from pipeline.corpus.prepared import Corpus
from pipeline.export.registry import at
from pipeline.files import storage
from pipeline.presets.table import PRESETS
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.run import read_summary
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from tests.conftest import finished_run, text_of

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.second  # test_onnx exports a BERT in the first tier

export: Callable[[list[str]], int] = runpy.run_path(str(Path(__file__).parents[2] / "jobs" / "export.py"))["main"]
MODEL_FILES = {"README.md", "config.json", "manifest.json", "tokenizer.json", "tokenizer_config.json"}
VOCABULARY_FILES = {"roberta": {"vocab.json", "merges.txt"}, "electra": {"vocab.txt"}}
TEXTS = ["kar MASK kand MASK!", "lost", "MASK kap"]


def byte_bpe() -> Vocabulary:
    return train_vocabulary(map(text_of, range(30)), size=300, lowercase=False, kind="byte-bpe")


@pytest.fixture(scope="module", params=["roberta", "electra"])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def run(
    family: str,
    tiny_config: Pretrain,
    tiny_corpus: Corpus,
    tiny_vocabulary: Vocabulary,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A finished run whose settings are the family's tiny preset's, but its sizes."""
    preset = PRESETS[f"{family}-tiny"]
    vocabulary = byte_bpe() if family == "roberta" else tiny_vocabulary
    sizes = {"layers": 2, "width": 32, "heads": 4, "feed_forward": 64, "maximum_positions": 32}
    model = replace(preset.model, **sizes).for_padding(vocabulary.pad_id)
    sampling: Sampling = replace(preset.sampling, maximum_length=32)
    config = replace(tiny_config, model=model, sampling=sampling, objective=preset.objective)
    return finished_run(tmp_path_factory.mktemp(family), config, tiny_corpus, vocabulary)


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all kinds of export."""
    folder = tmp_path_factory.mktemp("exports")
    kinds = ["huggingface", "onnx", "int8", "mlflow"]
    assert export([str(run), "--folder", str(folder), "--kinds", *kinds, "--register", "tiny"]) == 0
    return folder


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_folders_hold_a_model_each_and_say_how_they_were_checked(exported: Path, family: str) -> None:
    common = MODEL_FILES | VOCABULARY_FILES[family]
    graphs = common | {"fill_mask.onnx", "embedding.onnx"}
    assert files_in(exported / "onnx") == files_in(exported / "int8") == graphs
    sentences = {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"}
    own = common | {"model.safetensors"}
    generator = {f"generator/{name}" for name in own - {"README.md", "manifest.json"}} if family == "electra" else set()
    assert files_in(exported / "huggingface") == own | sentences | generator
    for kind in ("huggingface", "onnx", "int8"):
        assert storage.damage(str(exported / kind)) is None
        assert json.loads((exported / kind / "manifest.json").read_text())["checked"].startswith("checked: ")


def masked_folder(exported: Path, family: str) -> Path:
    return exported / "huggingface" / ("generator" if family == "electra" else "")


def asked(exported: Path, family: str) -> dict[str, np.ndarray]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported / "onnx")
    texts = [text.replace("MASK", tokenizer.mask_token) for text in TEXTS]
    return dict(tokenizer(texts, padding=True, return_tensors="np"))


def test_graphs_give_transformers_logits_and_means(exported: Path, family: str) -> None:
    inputs = asked(exported, family)
    kept = inputs["attention_mask"].astype(bool)
    masked = transformers.AutoModelForMaskedLM.from_pretrained(masked_folder(exported, family)).eval()
    encoder = transformers.AutoModel.from_pretrained(exported / "huggingface").eval()
    with torch.inference_mode():
        tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
        logits, hidden = masked(**tensors).logits.numpy(), encoder(**tensors).last_hidden_state.numpy()
    means = [hidden[row, : mask.sum()].mean(0) for row, mask in enumerate(kept)]
    for kind, close in (("onnx", 1e-5), ("int8", 0.2)):
        fill, embed = (
            onnxruntime.InferenceSession(exported / kind / f"{name}.onnx") for name in ("fill_mask", "embedding")
        )
        names = [entry.name for entry in fill.get_inputs()]
        assert names == ["input_ids", "attention_mask"] + ["token_type_ids"] * (family == "electra")
        given = {name: inputs[name] for name in names}
        np.testing.assert_allclose(fill.run(None, given)[0][kept], logits[kept], atol=close * np.abs(logits).max())
        np.testing.assert_allclose(embed.run(None, given)[0], means, atol=close * np.abs(means).max())


def test_the_examples_of_the_cards_run(
    exported: Path, family: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = 0
    for kind in ("huggingface", "onnx", "int8"):
        monkeypatch.chdir(exported / kind)
        card = (exported / kind / "README.md").read_text()
        assert f"\n- {family}\n" in card and "\n- bert\n" not in card
        for example in card.split("```python\n")[1:]:
            code = example.split("```")[0]
            if "sentence_transformers" not in code:
                exec(compile(code, "card", "exec"), {})
                ran += 1
    assert ran == 4


def test_mlflow_serves_it(exported: Path, run: Path, family: str) -> None:
    folder = folder_of(str(run), 3)
    model = api.load(str(exported / "huggingface"))
    mask = model.vocabulary.tokens[model.vocabulary.mask_id]
    texts = [text.replace("MASK", mask) for text in TEXTS]
    with at(read_summary(str(run))["mlflow_uri"]):
        served = mlflow.pyfunc.load_model("models:/tiny/1")
    blanks = served.predict(pd.DataFrame({"text": texts}), params={"top": 2})
    vectors = served.predict(pd.DataFrame({"text": texts}), params={"task": "embeddings"})
    assert [len(guesses) for guesses in blanks] == [2, 0, 1]
    assert blanks[2] == model.fill(texts[2], top=2) == api.load(folder).fill(texts[2], top=2)
    np.testing.assert_allclose(vectors, [states.mean(0) for states in model.hidden(texts)], rtol=0, atol=1e-5)
