"""The files of published models: what is taken, in what form, and what is refused."""

import json
import os
import re
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pipeline.errors import CheckpointError
from pipeline.saved.files import digest_of, files_of, on_disk, read_config, read_shapes, read_weights

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.float16)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    return tmp_path


def weights(location: str | Path) -> dict[str, torch.Tensor]:
    files = files_of(str(location))
    assert read_config(str(location), files) == {"model_type": "bert"}
    with on_disk(str(location), files) as folder:
        found = read_weights(folder, files)
        assert read_shapes(folder, files) == {name: tensor.shape for name, tensor in found.items()}
    return found


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor] = TENSORS) -> None:
    assert found.keys() == expected.keys()
    assert all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in expected.items()
    )


def refusal(location: str | Path) -> str:
    with pytest.raises(CheckpointError) as refused:
        weights(location)
    return str(refused.value)


def test_safetensors_come_before_pickles(folder: Path) -> None:
    torch.save({"a": torch.zeros(1)}, folder / "pytorch_model.bin")
    assert_same(weights(folder), {"a": torch.zeros(1)})
    save_file(TENSORS, folder / "model.safetensors")
    assert_same(weights(folder))


@pytest.mark.parametrize("zipped", [True, False])
def test_pickles_of_any_age_are_read(folder: Path, zipped: bool) -> None:
    torch.save(TENSORS, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    assert_same(weights(folder))


def test_a_checkpoint_in_several_files_is_one(folder: Path) -> None:
    for place, (name, tensor) in enumerate(TENSORS.items(), start=1):
        save_file({name: tensor}, folder / f"model-{place:05d}-of-00002.safetensors")
    index = {
        "metadata": {},
        "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_same(weights(folder))
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert (
        refusal(folder)
        == f"{folder} has no model-00002-of-00002.safetensors, which model.safetensors.index.json names: fetch "
        f"all 2 files that the index names"
    )
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../elsewhere.safetensors"}}')
    assert (
        refusal(folder)
        == f"{folder} has no ../elsewhere.safetensors, which model.safetensors.index.json names: fetch all "
        f"1 files that the index names"
    )
    (folder / "model.safetensors.index.json").write_text("[]")
    assert (
        refusal(folder)
        == f"{folder}/model.safetensors.index.json is not an index of weights: weight_map cannot be read (it must be "
        f"a JSON object, not a list)"
    )


class Runs:
    """Unpickled, it would run a command."""

    def __reduce__(self) -> tuple:
        return os.system, ("touch ran",)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_wants_more_than_tensors_is_refused_and_not_run(
    folder: Path, zipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    torch.save(
        {"a": torch.ones(1), "more": Runs()}, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped
    )
    message = (
        "pytorch_model.bin holds more than tensors, and unpickling it could run any code (it asks for "
        "posix.system): save it as safetensors"
    )
    assert refusal(folder) == message and not (folder / "ran").exists()


def test_what_is_no_checkpoint_is_said(folder: Path) -> None:
    torch.save([torch.ones(1)], folder / "pytorch_model.bin")
    assert refusal(folder) == "pytorch_model.bin is not a dictionary of tensors by name: save the model's state_dict"
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04 cut off")
    assert refusal(folder).startswith("pytorch_model.bin ")
    (folder / "model.safetensors").write_bytes(b"short")
    assert refusal(folder).startswith("model.safetensors cannot be read: ")
    (folder / "config.json").write_text("{")
    assert refusal(folder).startswith("config.json cannot be read: ")


def test_a_pickle_whose_tensors_are_larger_than_the_file_is_refused(folder: Path) -> None:
    torch.save({"a": torch.zeros(1).expand(1 << 20, 1 << 20)}, folder / "pytorch_model.bin")
    size = (folder / "pytorch_model.bin").stat().st_size
    assert (
        refusal(folder)
        == f"pytorch_model.bin has {size:,} bytes, but its tensors would need {4 << 40:,} bytes: save each tensor "
        f"with its "
        "own memory"
    )
    torch.save({"a": torch.zeros(2, 2).to_sparse()}, folder / "pytorch_model.bin")
    assert refusal(folder) == "pytorch_model.bin: tensor a is not a plain tensor: save the model's state_dict"


def test_tensors_that_share_their_memory_once_are_taken(folder: Path) -> None:
    words = torch.arange(4000.0).view(1000, 4)
    torch.save({"words": words, "output": words}, folder / "pytorch_model.bin")
    assert_same(weights(folder), {"words": words, "output": words})


def test_a_compressed_archive_is_refused(folder: Path) -> None:
    torch.save(TENSORS, folder / "plain.bin")
    with (
        zipfile.ZipFile(folder / "plain.bin") as plain,
        zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    (folder / "plain.bin").unlink()
    assert re.fullmatch(r"pytorch_model.bin cannot be read: its member \S+ is compressed", refusal(folder))


@pytest.mark.parametrize("content", ["[" * 100_000, '{"weight_map": {"a": ["x"]}}', '{"weight_map": [1]}'])
def test_an_index_that_is_none_is_named(folder: Path, content: str) -> None:
    (folder / "model.safetensors.index.json").write_text(content)
    assert refusal(folder).startswith(f"{folder}/model.safetensors.index.json is not an index of weights: ")


def test_missing_files_are_named(folder: Path) -> None:
    ending = (
        ": give the folder of a published model, such as a run's export, or hf://OWNER/NAME of the Hugging Face hub"
    )
    several = "model.safetensors or model.safetensors.index.json or pytorch_model.bin or pytorch_model.bin.index.json"
    assert refusal(folder) == f"{folder} has no {several}{ending}"
    (folder / "config.json").unlink()
    assert refusal(folder) == f"{folder} has no config.json or bert_config.json{ending}"
    assert refusal(folder / "nowhere") == f"{folder}/nowhere has no config.json or bert_config.json{ending}"
    (folder / "export").mkdir()
    assert refusal(folder) == f"{folder} has no config.json or bert_config.json: {folder}/export has them"


def test_a_tensorflow_checkpoint_is_refused(folder: Path) -> None:
    (folder / "config.json").rename(folder / "bert_config.json")
    for name in ("bert_model.ckpt.index", "bert_model.ckpt.meta", "bert_model.ckpt.data-00000-of-00001", "vocab.txt"):
        (folder / name).write_bytes(b"")
    assert refusal(folder) == (
        f"{folder} has a TensorFlow checkpoint (bert_model.ckpt.index), which is not read: take the model in "
        "safetensors, such as hf://google-bert/bert-base-uncased, or convert it with transformers 4 (from_tf=True)"
    )
    save_file(TENSORS, folder / "model.safetensors")
    assert files_of(str(folder)).weights == "model.safetensors"


def test_the_fingerprint_is_that_of_the_contents(folder: Path) -> None:
    save_file(TENSORS, folder / "model.safetensors")
    first = digest_of(folder, files_of(str(folder)))
    (folder / "README.md").write_text("beside it")
    assert digest_of(folder, files_of(str(folder))) == first and len(first) == 64
    save_file(TENSORS | {"a": TENSORS["a"] + 1}, folder / "model.safetensors")
    assert digest_of(folder, files_of(str(folder))) != first


def test_a_model_of_the_hub_is_fetched(hub: Path) -> None:
    folder = hub / "google" / "bert"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    save_file(TENSORS, folder / "model.safetensors")
    assert_same(weights("hf://google/bert"))
    assert (
        refusal("hf://google/none")
        == "hf://google/none has no config.json or bert_config.json: give the folder of a published model, such "
        "as a run's export, or hf://OWNER/NAME of the Hugging Face hub"
    )
