"""Prompts of a contrastive training: those of --init, unless the settings name others."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.data import TwoCrops
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Contrastive
from pipeline.errors import CheckpointError
from pipeline.export.sentence_files import sentence_files
from pipeline.saved.naming import default_name, identifying_settings
from pipeline.saved.pooling import prompts_of
from pipeline.saved.prompts import prompts_in
from pipeline.saved.recipe import VectorRecipe, read_recipe
from pipeline.saved.run import record, settings_of
from pipeline.train.prompts import with_prompts


@pytest.fixture
def config(tiny_config: Pretrain, tmp_path: Path) -> Pretrain:
    """A contrastive training from a model with a prompt for queries and one for passages."""
    prompts = {"prompts": {"query": "q: ", "passage": "p: "}}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    sampling = replace(tiny_config.sampling, pairs=TwoCrops())
    return replace(tiny_config, objective=Contrastive(), sampling=sampling, init=str(tmp_path))


def prompted(config: Pretrain, query: str | None, document: str | None) -> Pretrain:
    return replace(config, sampling=replace(config.sampling, query_prompt=query, document_prompt=document))


def test_prompts_of_init_are_used_where_none_is_set(config: Pretrain) -> None:
    lines: list[str] = []
    assert with_prompts(config, lines.append) == prompted(config, "q: ", "p: ")
    assert lines == [
        f"prompts of init {config.init}: 'q: ' before the first text of each row, 'p: ' before its other texts; "
        "sampling.query_prompt '' and sampling.document_prompt '' leave them out"
    ]
    assert with_prompts(prompted(config, "", None), lines.append) == prompted(config, None, "p: ")
    assert with_prompts(prompted(config, None, "b: "), lines.append) == prompted(config, "q: ", "b: ")
    assert lines[1:] == [
        f"prompts of init {config.init}: 'p: ' before the other texts of each row; sampling.document_prompt '' leaves "
        "it out",
        f"prompts of init {config.init}: 'q: ' before the first text of each row; sampling.query_prompt '' leaves it "
        "out",
    ]
    assert with_prompts(prompted(config, "", ""), lines.append) == config  # as before prompts were used in training
    for unchanged in (prompted(config, "a: ", "b: "), replace(config, init=None)):
        assert with_prompts(unchanged, lines.append) == unchanged
    assert len(lines) == 3


def test_prompts_of_a_runs_checkpoint_are_those_of_the_run(config: Pretrain, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoints" / "step-3"
    checkpoint.mkdir(parents=True)
    identity = identifying_settings(prompted(config, "a: ", "b: "))
    (tmp_path / "run" / "run.json").write_text(json.dumps(record(identity, 12, "m", "c")))
    from_checkpoint = replace(config, init=str(checkpoint))
    assert read_recipe(str(checkpoint)).prompts == {"query": "a: ", "document": "b: "}
    assert with_prompts(from_checkpoint, print) == prompted(from_checkpoint, "a: ", "b: ")


def test_a_model_without_prompts_leaves_the_settings_as_they_are(
    config: Pretrain, tiny_config: Pretrain, tmp_path: Path
) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text('{"prompts": {"query": "", "other": "o"}}')
    lines: list[str] = []
    assert prompts_in(str(tmp_path)) == (None, None)
    assert with_prompts(config, lines.append) == config and lines == []
    masked = replace(tiny_config, init=str(tmp_path))
    assert with_prompts(masked, lines.append) == masked
    (tmp_path / "config_sentence_transformers.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config_sentence_transformers\.json cannot be read"):
        with_prompts(config, lines.append)


def test_the_export_has_the_prompts_and_runs_without_them_keep_their_names(config: Pretrain, tmp_path: Path) -> None:
    both = prompted(config, "q: ", "p: ")
    assert prompts_of(both) == {"query": "q: ", "document": "p: "} and prompts_of(config) == {}
    assert "config_sentence_transformers.json" not in sentence_files(8, 64)
    (tmp_path / "export" / "1_Pooling").mkdir(parents=True)
    for name, content in sentence_files(8, 64, prompts=prompts_of(both)).items():
        (tmp_path / "export" / name).write_text(content)
    recipe = read_recipe(str(tmp_path / "export"))
    assert recipe == VectorRecipe(maximum_length=64, prompts={"query": "q: ", "document": "p: "})
    assert prompts_in(str(tmp_path / "export")) == ("q: ", "p: ")
    names = [default_name("p", settings) for settings in (config, both, prompted(config, "q: ", None))]
    assert len(set(names)) == 3
    recorded = identifying_settings(config)
    assert not any("prompt" in name for name in recorded)
    assert settings_of({"identity": recorded, "steps": 12}).sampling == config.sampling
    assert settings_of({"identity": identifying_settings(both), "steps": 12}).sampling == both.sampling
