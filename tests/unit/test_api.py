"""A BERT in Python: what loads, what is refused in one line, fine-tuning on lists, and README's example."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pipeline import api, reporting
from pipeline.errors import CheckpointError, ConfigError, DataError, PipelineError
from pipeline.model.families.table import family_of
from pipeline.model.heads import AttentionPooling
from pipeline.model.weights import published_config, to_published
from pipeline.objectives.table import build_objective
from pipeline.on_ray import answering
from pipeline.presets.table import PRESETS
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.recipe import VectorRecipe

ROOT = Path(__file__).parents[2]
WORDS = ("kar", "lost", "mist", "kap")


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> api.LoadedModel:
    """The model of a run's newest checkpoint."""
    return api.load(str(tiny_run), device="cpu")


@pytest.fixture(scope="module")
def classifier(model: api.LoadedModel) -> api.LoadedModel:
    """Tells texts of kar from texts of lost."""
    texts = [f"{word} {other}" for word in ("kar", "lost") for other in WORDS] * 6
    labels = [text.split()[0] for text in texts]
    return model.fit(texts, labels, epochs=12, rows_per_step=8, learning_rate=1e-2)


def test_fit_says_what_it_does(model: api.LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(answering, "SECONDS", 0.0)
    model.fit(["kar", "lost", "mir", "kar kar"], ["a", "b", "b", "a"], epochs=2, rows_per_step=2, report=said.append)
    assert said[:3] == ["encoding 4 texts", "train: 4 rows", "training 2 epochs of 4 rows on cpu"]
    counts = [line.split(" rows trained")[0] for line in said[3:] if "rows trained" in line]
    assert counts == ["2 of 8", "4 of 8", "6 of 8", "8 of 8"]
    assert [line.split(":")[0] for line in said[3:] if "rows trained" not in line] == ["epoch 1 of 2", "epoch 2 of 2"]


def test_a_run_gives_its_newest_checkpoint(model: api.LoadedModel, tiny_run: Path) -> None:
    assert model.location == folder_of(str(tiny_run), 3)
    assert repr(model) == f"LoadedModel({model.location}: 2 layers, width 32, {model.vocabulary.size} entries, on cpu)"
    assert np.array_equal(model.embed(["kar"]), api.load(model.location).embed(["kar"]))


def test_shapes(model: api.LoadedModel) -> None:
    texts = ["kar kap", "lost"]
    lengths = [len(model.tokenize(text).ids) for text in texts]
    assert [states.shape for states in model.hidden(texts)] == [(length, 32) for length in lengths]
    assert [states.shape for states in model.hidden(texts, layers=[1, 2])] == [(2, length, 32) for length in lengths]
    assert model.cls(texts).shape == model.pooled(texts).shape == model.embed(texts).shape == (2, 32)
    assert np.linalg.norm(model.embed(texts), axis=1) == pytest.approx([1, 1], abs=1e-6)
    weights = model.attentions("kar kap")
    assert weights.shape == (2, 2, lengths[0], lengths[0]) and weights.sum(-1) == pytest.approx(1, abs=1e-5)
    assert [len(guesses) for guesses in model.fill("[MASK] kar [MASK]", top=3)] == [3, 3]
    assert np.array_equal(model.embed("lost"), model.embed(["lost"])[0])
    (first, second), masked = model.attentions(["kar kap", "lost"]), ["[MASK] kar", "lost [MASK]"]
    assert np.array_equal(first, weights) and np.array_equal(second, model.attentions("lost"))
    assert model.fill(masked, top=2) == [model.fill(text, top=2) for text in masked] and model.fill([]) == []
    assert model.embed([]).shape == (0, 32) and model.hidden([]) == []


def test_many_texts_keep_their_order(model: api.LoadedModel) -> None:
    texts = [" ".join(WORDS[place % 4] for place in range(number % 7 + 1)) for number in range(70)]
    one_by_one = np.concatenate([model.embed([text]) for text in texts])
    np.testing.assert_allclose(model.embed(texts), one_by_one, rtol=0, atol=1e-5)


def test_a_recipe_says_how_a_text_becomes_a_vector(model: api.LoadedModel) -> None:
    recipe = VectorRecipe(
        pooling="cls", normalized=False, prompts={"query": "kar "}, default_prompt="kap ", maximum_length=4
    )
    other = replace(model, recipe=recipe)
    states = model.cls(["kar lost", "kap lost", "lost", "kar kap"])
    found = [other.embed(["lost"], prompt="query"), other.embed(["lost"]), other.embed(["lost"], prompt="")]
    np.testing.assert_allclose(np.concatenate(found), states[:3], rtol=0, atol=1e-5)
    np.testing.assert_allclose(other.embed(["kap lost mist"], prompt="query")[0], states[3], rtol=0, atol=1e-5)
    highest = replace(model, recipe=VectorRecipe(pooling="max", normalized=False)).embed(["kar lost"])[0]
    np.testing.assert_allclose(highest, model.hidden(["kar lost"])[0].max(0), rtol=0, atol=1e-5)
    with pytest.raises(ConfigError, match=r"^prompt \(qury\) is not the name of a prompt of the model \(query\)"):
        other.embed(["lost"], prompt="qury")


def test_fit_is_silent_for_five_seconds_and_then_says_what_it_does(
    model: api.LoadedModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fit() -> str:
        model.fit(["kar", "lost", "mir", "kar kar"], ["a", "b", "b", "a"], epochs=1)
        return capsys.readouterr().out

    monkeypatch.setattr(reporting, "BEAT_SECONDS", 0.001)
    monkeypatch.setattr(reporting, "FIRST_SECONDS", 1_000.0)
    assert fit() == ""
    monkeypatch.setattr(reporting, "FIRST_SECONDS", 0.0)
    assert fit().startswith("fine-tuning (report=print shows more), 0s so far\n")


def test_a_fitted_model_embeds_as_after_it_is_saved(model: api.LoadedModel, tmp_path: Path) -> None:
    recipe = VectorRecipe(pooling="attention", attention=AttentionPooling(32), projection=torch.nn.Linear(32, 8))
    other = replace(model, recipe=replace(recipe, prompts={"query": "kar "}, default_prompt="kap ", maximum_length=4))
    fitted = other.fit(["kar", "lost"], ["a", "b"], epochs=1)
    fitted.save(str(tmp_path / "model"))
    again = api.load(str(tmp_path / "model"), device="cpu")
    assert fitted.recipe == again.recipe
    texts = ["kar lost mist kap kar lost", "kap"]
    np.testing.assert_allclose(again.embed(texts), fitted.embed(texts), rtol=0, atol=1e-6)


def test_a_fitted_model_predicts_and_the_other_stays(model: api.LoadedModel, classifier: api.LoadedModel) -> None:
    answers = classifier.predict(["kar mist", "lost mist", ""])
    assert [answer["label"] for answer in answers] == ["kar", "lost", None]
    assert sum(answers[0]["probabilities"].values()) == pytest.approx(1) and classifier.scores["train"]["accuracy"] == 1
    before = api.load(model.location).embed(["kar"])
    assert np.array_equal(model.embed(["kar"]), before) and not np.allclose(
        classifier.embed(["kar"]), before, atol=1e-3
    )


def test_a_fitted_model_is_saved_and_loaded(classifier: api.LoadedModel, tmp_path: Path) -> None:
    classifier.save(str(tmp_path / "model"))
    again = api.load(str(tmp_path / "model"))
    rows = ["kar mist", {"text": "lost mist"}]
    assert again.predict(rows) == classifier.predict(rows)
    with pytest.raises(ConfigError, match=r"model exists already: give a new folder$"):
        classifier.save(str(tmp_path / "model"))
    with pytest.raises(CheckpointError, match=rf"^{tmp_path} is not a model: give {tmp_path}/model$"):
        api.load(str(tmp_path))


def test_other_kinds_of_labels(model: api.LoadedModel) -> None:
    texts = ["kar", "lost", "kar lost", "mist"] * 4
    several = model.fit(texts, [["a"], ["b"], ["a", "b"], []] * 4, kind="multilabel", epochs=1, dev=(["kar"], [["a"]]))
    assert set(several.predict(["kar"])[0]["probabilities"]) == {"a", "b"} and list(several.scores) == ["dev"]
    values = model.fit(texts, np.array([1.0, 2.0, 3.0, 4.0] * 4), kind="regression", epochs=1)
    assert isinstance(values.predict(["kar"])[0]["score"], float)
    pairs = model.fit([("kar", "lost"), ("kar", "kar")] * 4, [0, 1] * 4, epochs=1)
    assert pairs.predict([("kar", "lost")]) == pairs.predict([{"text": "kar", "second": "lost"}])
    assert pairs.predict([("kar", "lost")])[0]["label"] in (0, 1)
    with pytest.raises(DataError, match=r"^rows have no second, which lists \(classification\) needs; they have text$"):
        pairs.predict(["kar"])
    with pytest.raises(
        DataError, match=r"^rows\[1\] has no second, which other rows have: give all rows the same form$"
    ):
        pairs.predict([("kar", "lost"), "kar"])


@pytest.mark.parametrize(
    ("labels", "values"),
    [
        (np.array([1, 0]), [0, 1]),
        ([True, False], [False, True]),
        ([np.float32(0.5), 2], [0.5, 2.0]),
        ([1, "0"], ["0", "1"]),
    ],
)
def test_predicted_labels_have_the_type_of_those_that_were_given(
    model: api.LoadedModel, tmp_path: Path, labels: list[Any], values: list[Any]
) -> None:
    model.fit(["kar", "lost"], labels, epochs=1, dev=(["mist"], labels[:1])).save(str(tmp_path / "model"))
    (answer,) = api.load(str(tmp_path / "model")).predict(["kar"])
    found = list(answer["probabilities"])
    assert found == values and [type(value) for value in found] == [type(value) for value in values]
    assert answer["probability"] == answer["probabilities"][answer["label"]]
    record = json.loads((tmp_path / "model" / "task.json").read_text())["task"]
    assert ("typed_labels" in record) == (not isinstance(values[0], str)), "other records are as in earlier versions"


def test_several_labels_keep_their_type_and_empty_texts_have_none(model: api.LoadedModel) -> None:
    several = model.fit(["kar", "lost"], [[1, 2], [2]], kind="multilabel", epochs=1)
    answer, empty = several.predict(["kar", ""])
    assert list(answer["probabilities"]) == [1, 2] and set(answer["labels"]) <= {1, 2}
    assert empty == {"labels": None, "probabilities": None}


LOADS: dict[str, tuple[str, str]] = {
    "no-folder": (
        "FOLDER/none",
        r"none does not exist: give the folder of a model or a run, or hf://OWNER/NAME for a model",
    ),
    "hub-without-scheme": ("some-owner/name", r"or hf://some-owner/name for a model of the Hugging Face hub$"),
    "hub-without-owner": (
        "hf://bert-base",
        r"^hf://bert-base names no owner: a model of the hub is hf://OWNER/NAME, such as hf://google-bert/bert-base$",
    ),
    "no-model": ("FOLDER", r"has no config\.json or bert_config\.json: give the folder of a published model"),
    "broken-config": ("FOLDER/broken", r"broken/config\.json cannot be read: it must be a JSON object, not a list$"),
    "empty-run": ("FOLDER/run", r"run has no checkpoint yet: wait for the first$"),
}


@pytest.mark.parametrize("case", LOADS)
def test_what_is_no_model_is_one_line(case: str, model: api.LoadedModel, tmp_path: Path) -> None:
    shutil.copytree(model.location, tmp_path / "broken")
    (tmp_path / "broken" / "manifest.json").unlink()
    (tmp_path / "broken" / "config.json").write_text("[]")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    location, message = LOADS[case]
    with pytest.raises((ConfigError, CheckpointError), match=message) as told:
        api.load(location.replace("FOLDER", str(tmp_path)))
    assert "\n" not in str(told.value)


REFUSED: dict[str, tuple[Callable[[api.LoadedModel], object], str]] = {
    "no-texts": (lambda model: model.embed(3), r"^texts is '3': give a list of texts$"),
    "mask-of-a-list": (lambda model: model.fill(["[MASK]", "kar"]), r"^text 'kar' has no \[MASK\] among its 3 tokens"),
    "one-text": (lambda model: model.hidden("kar"), r"^texts is one text \('kar'\): give a list of texts$"),
    "number": (lambda model: model.cls(["kar", 3]), r"^texts\[1\] is '3': a text is a string"),
    "surrogate": (
        lambda model: model.embed(["kar", "\ud83d"]),
        r"^texts\[1\] \('\\ud83d'\) has half of a surrogate pair: give valid Unicode$",
    ),
    "surrogate-in-a-pair": (lambda model: model.tokenize(("kar", "\ud83d")), r"^texts\[0\] \(.+ half of a surrogate"),
    "layer": (
        lambda model: model.hidden(["kar"], layers=3),
        r"^layers \(3\) must be from -3 to 2: this model has 2 layers",
    ),
    "no-layer": (lambda model: model.hidden(["kar"], layers=[]), r"^layers is empty"),
    "last-four": (
        lambda model: model.hidden(["kar"], layers="mean of last four"),
        r"which needs at least 4 layers; this model has 2$",
    ),
    "no-mask": (lambda model: model.fill("kar"), r"^text 'kar' has no \[MASK\] among its 3 tokens"),
    "predict": (
        lambda model: model.predict(["kar"]),
        r"was not fine-tuned: \.fit\(texts, labels\) returns a model that predicts",
    ),
    "save": (lambda model: model.save("/tmp/none"), r"was not fine-tuned, so it has nothing new to save"),
    "lengths": (
        lambda model: model.fit(["kar"], [1, 2]),
        r"^lists: 1 texts and 2 labels: give one label for each text$",
    ),
    "one-class": (lambda model: model.fit(["kar", "lost"], [1, 1]), r"^lists: all 2 rows have the label '1'"),
    "no-label": (lambda model: model.fit(["kar", "lost"], [1, None]), r"^lists:1: column label has no label"),
    "empty-text": (lambda model: model.fit(["kar", " "], [1, 2]), r"^lists:1: the text is empty: leave the row out$"),
    "no-list": (lambda model: model.fit(["a", "b"], [1, 2], kind="multilabel"), r"^lists:0: label '1' is not a list"),
    "kind": (lambda model: model.fit(["a", "b"], [1, 2], kind="tags"), r"^kind \(tags\) must be classification"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_asked_is_one_line(case: str, model: api.LoadedModel) -> None:
    ask, message = REFUSED[case]
    with pytest.raises(PipelineError, match=message) as told:
        ask(model)
    assert "\n" not in str(told.value)


def test_a_gpu_that_is_not_there_is_refused(model: api.LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"^device cuda needs a GPU, and this process sees none: use cpu$"):
        api.load(model.location, device="cuda")


@pytest.fixture
def untrained(tmp_path: Path) -> Path:
    """A published model with the sizes of `quickstart`, random weights, and the words of README's example."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "fine", "bad", "poor", "quite", "rather", ".", "the"]
    preset = PRESETS["quickstart"]
    torch.manual_seed(0)
    module = build_objective(preset.objective, preset.sampling, preset.model, len(words))
    folder = tmp_path / "untrained"
    folder.mkdir()
    save_file(to_published(module.state_dict(), family_of(preset.model)), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(published_config(preset.model, len(words), 0)))
    (folder / "vocab.txt").write_text("\n".join(words))
    return folder


@pytest.mark.usefixtures("one_thread")
def test_the_python_page_names_every_public_method_and_its_examples_run(
    untrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "jobs/PYTHON.md").read_text()
    examples = "\n".join(re.findall(r"```python\n(.*?)```", page, re.S))
    found: dict[str, Any] = {}
    exec(examples.replace("output/runs/NAME", str(untrained)).replace("* 25", "* 2"), found)
    model, again, tokens = found["model"], found["again"], found["tokens"]
    assert [text.shape for text in found["states"]] == [(3, 128), (4, 128)]  # [CLS] good [SEP]; two words
    assert found["by_layer"][0].shape == (3, 3, 128) and len(tokens.pieces) == found["weights"].shape[-1] == 6
    assert found["vectors"].shape == (2, model.dimension) and found["one"].shape == (model.dimension,)
    assert [len(guesses) for guesses in found["guesses"]] == [3]
    assert again.predict(["quite good", "rather bad"]) == found["answers"] and set(found["scores"]) == {"dev"}
    public = {name for part in type(model).__mro__ for name in (*vars(part), *getattr(part, "__annotations__", ()))}
    assert [name for name in public if not name.startswith("_") and not re.search(rf"\b{name}\b", page)] == []


def test_the_readme_s_example_works_without_ray_and_mlflow_and_without_pretraining(untrained: Path) -> None:
    example = next(
        block
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
        if "api.load" in block
    )
    (named,) = re.findall(r'api\.load\("([^"]*)"\)', example)
    heavy = ["ray", "mlflow", "transformers"]
    code = (
        f"{example.replace(named, str(untrained))}\nimport json, sys\nloaded = [name for name in {heavy} if "
        "name in sys.modules]\nprint(json.dumps([loaded, [answer['label'] for answer in answers]]))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert json.loads(found.splitlines()[-1]) == [[], [1, 0]]
