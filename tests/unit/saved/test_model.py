"""A model on disk as a value: of a run, exported, fine-tuned, with a generator, with files of a pooling, of the hub."""

import json
import pickle
from pathlib import Path

import fsspec
import pytest
import torch
from fsspec.registry import _registry
from safetensors.torch import load_file, save_file

from pipeline.config.cutting import Truncation
from pipeline.config.jobs import Pretrain
from pipeline.config.training import AdamW
from pipeline.errors import CheckpointError, ConfigError
from pipeline.export.sentence_files import sentence_files
from pipeline.files import storage
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.optim.build import build_optimizer
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.files import NoModel
from pipeline.saved.model import SavedModel, open_saved
from pipeline.saved.recipe import VectorRecipe
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.checkpoint import State, save

WORDS = "bert.embeddings.word_embeddings.weight"


@pytest.fixture
def folder(training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path) -> Path:
    """The files of a pretrained model, without a manifest, as others publish them."""
    module = training.module(tiny_config)
    saved = Path(save(str(tmp_path / "run"), State(), module, build_optimizer(AdamW(), module), tiny_vocabulary))
    for name in ("manifest.json", "optimizer.safetensors", "state.json"):
        (saved / name).unlink()
    return saved


def refusal(location: str | Path, kind: type[Exception] = CheckpointError) -> str:
    with pytest.raises(kind) as refused:
        open_saved(str(location))
    return str(refused.value)


def test_a_published_model(folder: Path, tiny_config: Pretrain, tiny_vocabulary: Vocabulary) -> None:
    saved = open_saved(str(folder))
    assert (saved.settings, saved.vocabulary, saved.head) == (tiny_config.model, tiny_vocabulary, "BertForMaskedLM")
    assert (saved.has_manifest, saved.has_record) == (False, False)
    assert (saved.origin, saved.recipe, saved.generator) == (None, None, None)
    tensors = load_file(folder / "model.safetensors")
    found = saved.tensors()
    assert found.keys() == tensors.keys() and all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_shapes_are_read_without_tensors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {name: tensor.shape for name, tensor in load_file(folder / "model.safetensors").items()}
    monkeypatch.setattr("pipeline.saved.files.load_file", pytest.fail)
    shapes = open_saved(str(folder)).shapes()
    assert shapes == expected and shapes[WORDS][1] == 32


def test_workers_get_the_value_without_what_was_read(folder: Path, tiny_vocabulary: Vocabulary) -> None:
    saved = open_saved(str(folder))
    before = pickle.dumps(saved)
    assert saved.vocabulary == tiny_vocabulary and saved.tensors()
    assert pickle.dumps(saved) == before and len(before) < 3_000
    assert pickle.loads(before) == saved and pickle.loads(before).vocabulary == tiny_vocabulary


def test_a_checkpoint_of_a_run(tiny_run: Path, tiny_config: Pretrain) -> None:
    saved = open_saved(folder_of(str(tiny_run), 2))
    assert saved.has_manifest and not saved.has_record and saved.origin is not None
    assert (saved.origin.folder, saved.origin.step) == (str(tiny_run), 2)
    assert saved.origin.settings.sampling == tiny_config.sampling
    assert type(saved.origin.settings.objective) is type(tiny_config.objective)
    assert storage.exists(storage.join(saved.origin.corpus, storage.MANIFEST))
    assert saved.recipe == VectorRecipe(maximum_length=32), "its rows have 32 tokens"


def test_a_fine_tuned_model_has_its_record(tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    task, model = Task(name="a", kind="classification", labels=("no", "yes"), metrics=("accuracy",)), tiny_config.model
    module = OBJECTIVES[task.kind](model, tiny_vocabulary.size, 2, torch.Generator().manual_seed(1), "cls", None)
    about = About(task=task, cutting=Truncation(maximum_length=16, stride=4), pooling="cls", thresholds={}, lineage={})
    save_tuned(str(tmp_path / "m"), module, about, model, tiny_vocabulary)
    saved = open_saved(str(tmp_path / "m"))
    assert saved.has_record and saved.record["task"]["labels"] == ["no", "yes"]
    assert (saved.head, saved.origin) == ("BertForSequenceClassification", None)
    (tmp_path / "m" / "task.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"m: task\.json cannot be used \(ValueError: it must be a JSON object"):
        _ = open_saved(str(tmp_path / "m"), verify=False).record
    (tmp_path / "m" / "config.json").unlink()
    for verify in (True, False):
        with pytest.raises(CheckpointError, match=r"m is damaged: (config\.json|task\.json) ") as refused:
            open_saved(str(tmp_path / "m"), verify=verify)
        assert not isinstance(refused.value, NoModel)


@pytest.mark.parametrize("family_config", ["electra"], indirect=True)
def test_a_model_with_a_generator(
    training, family_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    module = training.module(family_config)
    folder = save(str(tmp_path), State(step=1), module, build_optimizer(AdamW(), module), tiny_vocabulary)
    saved = open_saved(folder)
    assert saved.settings.width == 32 and saved.generator is not None and saved.generator.settings.width == 8
    assert saved.generator.location == f"{folder}/generator" and saved.generator.digest() != saved.digest()
    assert "generator_lm_head.bias" in saved.generator.shapes() and "generator_lm_head.bias" not in saved.shapes()


def test_a_model_with_files_of_a_pooling_may_have_its_encoder_in_a_subfolder(
    folder: Path, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    for name, content in sentence_files(32, 24, "cls", prompts={"query": "q: "}).items():
        storage.write_bytes(str(folder / name), content.encode())
    saved = open_saved(str(folder))
    assert saved.recipe == VectorRecipe(pooling="cls", maximum_length=24, prompts={"query": "q: "})
    digest, steps = saved.digest(), json.loads((folder / "modules.json").read_text())
    (tmp_path / "outer").mkdir()
    folder.rename(tmp_path / "outer" / "0_Transformer")
    steps[0]["path"] = "0_Transformer"
    (tmp_path / "outer" / "modules.json").write_text(json.dumps(steps))
    inner = open_saved(str(tmp_path / "outer"))
    assert (inner.location, inner.folder) == (f"{tmp_path}/outer", f"{tmp_path}/outer/0_Transformer")
    assert inner.digest() == digest and inner.vocabulary == tiny_vocabulary


def test_a_model_of_the_hub_is_fetched_once_for_all_that_is_read(hub: Path, folder: Path) -> None:
    (hub / "google").mkdir()
    local = open_saved(str(folder.rename(hub / "google" / "bert")))
    saved = open_saved("hf://google/bert")
    with saved.fetched() as fetched:
        assert isinstance(fetched, SavedModel) and Path(fetched.folder, "config.json").is_file()
        assert fetched.digest() == local.digest() and fetched.tensors().keys() == local.shapes().keys()
    assert not Path(fetched.folder).exists() and saved.digest() == local.digest()
    assert refusal("hf://google/none", NoModel).startswith("hf://google/none has no config.json or bert_config.json: ")
    assert refusal("hf://bert", ConfigError).startswith("hf://bert names no owner: ")


def test_a_folder_must_match_its_manifest(folder: Path, tmp_path: Path) -> None:
    (folder / "README.md").write_text("# A model\n")
    storage.publish(folder, str(tmp_path / "export"), {})
    assert open_saved(str(tmp_path / "export")).has_manifest
    (tmp_path / "export" / "README.md").write_text("# A model\n\nIts card, edited on the hub.\n")
    assert open_saved(str(tmp_path / "export")).has_manifest
    assert storage.damage(str(tmp_path / "export")) == "README.md has 40 bytes, the manifest says 10"
    tensors = load_file(tmp_path / "export" / "model.safetensors")
    save_file(tensors | {WORDS: tensors[WORDS] + 1}, tmp_path / "export" / "model.safetensors", {"format": "pt"})
    message = f"{tmp_path}/export is damaged: model.safetensors does not match its SHA-256"
    assert refusal(tmp_path / "export") == message
    assert open_saved(str(tmp_path / "export"), verify=False).has_manifest


def test_messages_begin_with_the_location(folder: Path) -> None:
    saved = open_saved(str(folder))
    (folder / "model.safetensors").write_bytes(b"short")
    for read in (saved.digest, saved.shapes, saved.tensors):
        with pytest.raises(CheckpointError) as refused:
            read()
        assert str(refused.value).startswith(f"{folder}: model.safetensors cannot be read: ")
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(CheckpointError) as refused:
        _ = open_saved(str(folder)).settings
    assert str(refused.value).startswith(f"{folder}: config.json: model_type is 'gpt2', but only ")
    (folder / "config.json").write_text("{")
    assert refusal(folder).startswith(f"{folder}: config.json cannot be read: ")


def test_a_hub_that_is_away_is_one_line() -> None:
    class Away(fsspec.AbstractFileSystem):
        protocol = "hf"
        cachable = False

        def info(self, path: str, **_: object) -> dict:
            raise RuntimeError("[Errno -2] Name or service not known\nand more")

    fsspec.register_implementation("hf", Away, clobber=True)
    try:
        assert refusal("hf://google/bert") == "hf://google/bert cannot be read: [Errno -2] Name or service not known"
    finally:
        _registry.pop("hf")
