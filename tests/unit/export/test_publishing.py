"""Licenses and names for the hub, and the files that sentence-transformers reads."""

import json

import pytest

from pipeline.config.export import Export
from pipeline.config.publishing import ON_THE_HUB, license_fields, require_hub_name, spdx_identifier
from pipeline.errors import ConfigError
from pipeline.export.sentence_files import sentence_files


def refusal(**settings) -> str:
    with pytest.raises(ConfigError) as refused:
        Export(run="r", **settings)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_license_is_known_in_any_case() -> None:
    assert [spdx_identifier(given) for given in ("apache-2.0", "MIT", "cc-by-sa-4.0")] == [
        "Apache-2.0",
        "MIT",
        "CC-BY-SA-4.0",
    ]
    assert license_fields("Apache-2.0") == {"license": "apache-2.0"}
    assert all(spdx_identifier(name).lower() == name for name in ON_THE_HUB)


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("apache2", "; did you mean apache-2.0 or "),
        ("cc-by-4", "; did you mean cc-by-4.0 or "),
        ("MIT License", ""),
        ("proprietary-of-mine-and-nobody-else", ""),
        ("", ""),
    ],
)
def test_what_is_no_license_is_refused_with_the_nearest(given: str, near: str) -> None:
    said = refusal(license=given)
    words = f"license ({given}) is not an SPDX identifier (spdx.org/licenses), such as apache-2.0 or cc-by-4.0{near}"
    assert said.startswith(words)


def test_a_push_needs_a_license_an_owner_and_one_kind() -> None:
    assert refusal(push_to_hub="me/bert") == (
        "push_to_hub (me/bert) needs license: give the SPDX identifier of the license under which others may use "
        "the model, such as --license apache-2.0"
    )
    assert refusal(push_to_hub="bert", license="mit") == (
        "push_to_hub (bert) names no owner: give OWNER/NAME, such as my-name/bert"
    )
    assert refusal(push_to_hub="me/bert", license="mit", kinds=("huggingface", "onnx")) == (
        "push_to_hub (me/bert) uploads one folder, but kinds is huggingface, onnx: "
        "choose one of huggingface, onnx, int8, and push the others under other names"
    )
    assert refusal(push_to_hub="me/bert", license="mit", kinds=("mlflow",)).startswith(
        "push_to_hub (me/bert) uploads one folder"
    )
    assert refusal(private=True) == "private needs push_to_hub: give --push-to-hub OWNER/NAME too, or leave private out"
    Export(run="r", push_to_hub="me/bert", license="mit", private=True)


@pytest.mark.parametrize(
    "name",
    ["me/", "/bert", "me/a b", "me/../x", "me/x--y", "me/-x", "hf://me/x", "a/b/c", "me/x.git", f"me/{'x' * 94}"],
)
def test_names_that_the_hub_does_not_allow(name: str) -> None:
    with pytest.raises(ConfigError, match=r"each begin with a letter or digit, .* end with -, \. or \.git$"):
        require_hub_name(name)


def test_the_names_that_the_hub_allows_are_those_of_its_library() -> None:
    validators = pytest.importorskip("huggingface_hub.utils")
    for name in ("me/bert", "Me-2/bert_base.v1", f"me/{'x' * 93}"):
        require_hub_name(name)
        validators.validate_repo_id(name)


def test_the_files_of_sentence_transformers_field_by_field() -> None:
    found = {name: json.loads(content) for name, content in sentence_files(384, 128).items()}
    assert found == {
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": 384,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
            "pooling_mode_weightedmean_tokens": False,
            "pooling_mode_lasttoken": False,
            "include_prompt": True,
        },
        "sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": False},
    }
