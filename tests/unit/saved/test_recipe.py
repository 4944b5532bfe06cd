"""Recipes of sentence-transformers folders, in both formats, and those that are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pipeline.errors import CheckpointError, ConfigError
from pipeline.export.sentence_files import sentence_files
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.prompts import OF_DOCUMENTS, OF_QUERIES
from pipeline.saved.recipe import VectorRecipe, read_recipe

OLD, NEW = "sentence_transformers.models.", "sentence_transformers.base.modules.x."
FLAGS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False}


def steps(kinds: tuple[str, ...], package: str = OLD) -> list[dict[str, Any]]:
    paths = {"Transformer": "", "Pooling": "1_Pooling"}
    return [{"idx": 0, "name": "0", "path": paths.get(kind, "2"), "type": package + kind} for kind in kinds]


def write(folder: Path, files: dict[str, Any]) -> str:
    for name, value in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return str(folder)


def test_a_folder_before_version_5_4(tmp_path: Path) -> None:
    location = write(
        tmp_path,
        {
            "modules.json": steps(("Transformer", "Pooling")),
            "1_Pooling/config.json": {"word_embedding_dimension": 8, **FLAGS},
            "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
            "tokenizer_config.json": {"model_max_length": 512},
        },
    )
    assert read_recipe(location) == VectorRecipe(pooling="cls", normalized=False, maximum_length=256)


def test_a_folder_since_version_5_4(tmp_path: Path) -> None:
    location = write(
        tmp_path,
        {
            "modules.json": steps(("Transformer", "Pooling", "Normalize"), NEW),
            "1_Pooling/config.json": {"embedding_dimension": 8, "pooling_mode": "max", "include_prompt": True},
            "sentence_bert_config.json": {"transformer_task": "feature-extraction"},
            "tokenizer_config.json": {"model_max_length": 128},
            "config_sentence_transformers.json": {
                "prompts": {"query": "q: ", "passage": "p: "},
                "default_prompt_name": "passage",
                "similarity_fn_name": "dot",
            },
        },
    )
    found = read_recipe(location)
    assert found == VectorRecipe(
        pooling="max", normalized=True, prompts={"query": "q: ", "passage": "p: "}, default_prompt="p: ",
        maximum_length=128, similarity="dot",
    )  # fmt: skip
    assert (found.prompt(None), found.prompt(None, OF_QUERIES), found.prompt(None, OF_DOCUMENTS)) == (
        "p: ",
        "q: ",
        "p: ",
    )
    assert (found.prompt("query"), found.prompt(""), found.prompt("find: ")) == ("q: ", "", "find: ")
    with pytest.raises(
        ConfigError, match=r"^prompt \(qury\) is not the name of a prompt of the model \(query, passage\)"
    ):
        found.prompt("qury")


def test_a_prompt_that_is_not_pooled_is_refused_when_it_is_used(tmp_path: Path) -> None:
    pooling = {"1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": False}}
    found = read_recipe(write(tmp_path, {"modules.json": steps(("Transformer", "Pooling"))} | pooling))
    assert found.prompt(None) == ""
    with pytest.raises(ConfigError, match=r"^prompt \(find: \) .*include_prompt false.* leave the prompt out"):
        found.prompt("find: ")


def test_a_projection_is_read(tmp_path: Path) -> None:
    files = {
        "modules.json": steps(("Transformer", "Pooling", "Dense", "Normalize")),
        "2/config.json": {"activation_function": "torch.nn.modules.linear.Identity", "in_features": 2},
    }
    location = write(tmp_path, files)
    save_file({"linear.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])}, tmp_path / "2/model.safetensors")
    projection = read_recipe(location).projection
    assert projection is not None and not projection.weight.requires_grad
    assert projection(torch.tensor([[1.0, -1.0]])).tolist() == [[-1, -1, -1]]
    save_file(
        {"linear.weight": torch.zeros(3, 2), "residual.weight": torch.zeros(3, 2)}, tmp_path / "2/model.safetensors"
    )
    with pytest.raises(CheckpointError, match="has the tensors linear.weight, residual.weight, but a Dense has linear"):
        read_recipe(location)


def test_a_folder_without_these_files_has_the_mean_of_length_1(tmp_path: Path) -> None:
    assert read_recipe(str(tmp_path)) == VectorRecipe(pooling="mean", normalized=True, maximum_length=None)
    assert VectorRecipe().prompt(None) == VectorRecipe().prompt(None, OF_QUERIES) == ""


def test_the_files_that_we_write_are_read(tmp_path: Path) -> None:
    assert read_recipe(write(tmp_path, sentence_files(8, 64))) == VectorRecipe(maximum_length=64)


def test_a_run_is_read_to_the_length_that_it_was_trained_on(tiny_run: Path, tmp_path: Path) -> None:
    recorded = json.loads((tiny_run / "run.json").read_text())
    recorded["identity"] |= {"sampling.maximum_length": 16}
    (tmp_path / "run.json").write_text(json.dumps(recorded))
    assert read_recipe(folder_of(str(tmp_path), 3)) == VectorRecipe(maximum_length=16)
    for wanted, read in ((24, 24), (64, recorded["identity"]["model.maximum_positions"])):
        recorded["identity"] |= {"sampling.exported_length": wanted}
        (tmp_path / "run.json").write_text(json.dumps(recorded))
        assert read_recipe(folder_of(str(tmp_path), 3)) == VectorRecipe(maximum_length=read)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "step": (
        {"modules.json": steps(("Transformer", "Pooling", "Dense", "Dense"))},
        r"modules\.json has the steps Transformer, Pooling, Dense, Dense, but only Transformer, Pooling, Dense and "
        r"Normalize, in this order, are supported",
    ),
    "activation": (
        {"modules.json": steps(("Transformer", "Pooling", "Dense")), "2/config.json": {"bias": True}},
        r"2/config\.json has activation_function torch\.nn\.modules\.activation\.Tanh, which is not supported: ",
    ),
    "residual": (
        {
            "modules.json": steps(("Transformer", "Pooling", "Dense")),
            "2/config.json": {"activation_function": "torch.nn.modules.linear.Identity", "use_residual": True},
        },
        r"2/config\.json has a residual connection, which is not supported",
    ),
    "pooling": (
        {"1_Pooling/config.json": {"pooling_mode": "lasttoken"}},
        r"1_Pooling/config\.json has pooling lasttoken, which is not supported: .* one of mean, cls, max$",
    ),
    "two-poolings": (
        {"1_Pooling/config.json": FLAGS | {"pooling_mode_mean_tokens": True}},
        r"has pooling cls, mean, which is not supported",
    ),
    "prompt": (
        {
            "1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": False},
            "config_sentence_transformers.json": {"prompts": {"query": "q: "}},
        },
        r"has include_prompt false, which leaves a prompt's tokens out",
    ),
    "class": (
        {"modules.json": [{"type": "custom_st.Transformer", "path": ""}, *steps(("Pooling",))]},
        r"modules\.json has a step of the class 'custom_st\.Transformer', which is not one of sentence-transformers: ",
    ),
    "default-prompt": (
        {"config_sentence_transformers.json": {"prompts": {"query": "q: "}, "default_prompt_name": "passage"}},
        r"has default_prompt_name 'passage', which is not one of its prompts \(query\): correct the name$",
    ),
    "kind-of-model": (
        {"config_sentence_transformers.json": {"model_type": "SparseEncoder"}},
        r"has model_type 'SparseEncoder', which is not supported: .* without it \('SentenceTransformer'\)$",
    ),
    "length-of-queries": (
        {"sentence_bert_config.json": {"query_length": 32}},
        r"sentence_bert_config\.json has query_length '32', which is not supported: ",
    ),
    "arguments": (
        {
            "sentence_bert_config.json": {
                "model_args": {"torch_dtype": "float16"},
                "config_args": {"hidden_act": "relu"},
            }
        },
        r"sentence_bert_config\.json: config_args has hidden_act 'relu', which is not supported: ",
    ),
    "scaled-tokens": (
        {
            "modules.json": steps(("Transformer", "Pooling", "Normalize")),
            "2/config.json": {"module_input_name": "token_embeddings"},
        },
        r"2/config\.json has module_input_name 'token_embeddings', which is not supported: .*'sentence_embedding'",
    ),
    "not-json": ({"1_Pooling/config.json": "{"}, r"1_Pooling/config\.json cannot be read: "),
    "no-list": ({"modules.json": {"a": 1}}, r"modules\.json cannot be read as a list of steps"),
    "outside": (
        {"modules.json": [{"type": f"{OLD}Transformer", "path": ""}, {"type": f"{OLD}Pooling", "path": "../x"}]},
        r"names '\.\./x', which is outside of the folder$",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_supported_is_one_line(case: str, tmp_path: Path) -> None:
    files, message = REFUSED[case]
    location = write(tmp_path, {"modules.json": steps(("Transformer", "Pooling"))} | files)
    with pytest.raises(CheckpointError, match=message) as told:
        read_recipe(location)
    assert "\n" not in str(told.value)
