"""A trial of kind similarity, from the files of a task to the model that is scored; and the settings that fit it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.config.adapters import Adapter, Bottleneck, Freeze, LowRank, NoAdapter
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune, GridSearch, Similarity, Trials
from pipeline.config.placement import TrialPlacement
from pipeline.config.predict import Score
from pipeline.config.recipe import Recipe
from pipeline.embed.encoders import MODEL, load_encoders
from pipeline.embed.similarity import score_similarity
from pipeline.errors import ConfigError
from pipeline.export.tuned_card import tuned_files
from pipeline.fine_tuned.tuned import About, save_tuned
from pipeline.finetune.trials import build, identity_of, load_or_train, make_trial
from pipeline.grid.comparison import row_difference
from pipeline.grid.inputs import GridInputs, read_inputs
from pipeline.grid.planning import grid_name
from pipeline.saved.checkpoints import folder_of

COSINE = Similarity(loss="cosine")


def inputs_of(tiny_run: Path, glue: Path, task: str = "stsb-similarity", **settings) -> GridInputs:
    config = Finetune(
        checkpoint=folder_of(str(tiny_run), 3), data=str(glue), task=(task,), output=str(glue / "out"),
        cutting=Truncation(maximum_length=32), **settings,
    )  # fmt: skip
    return read_inputs(config, lambda line: None)


def test_a_trained_model_has_the_dev_score_of_its_trial(tiny_run: Path, glue: Path) -> None:
    inputs = inputs_of(tiny_run, glue, recipe=Recipe(epochs=1, rows_per_step=8))
    (problem,) = inputs.problems.values()
    assert problem.train.rows.num_rows == 60 and problem.task.metrics == ("spearman", "pearson")
    trial = make_trial(inputs.config, problem, inputs.initial, 0, {}, "report")
    result = load_or_train(trial, problem, inputs.initial)
    dev, model = glue / "STS-B/dev.tsv", f"{trial.folder}/model"
    scores = score_similarity(Score(checkpoint=model, similarity=str(dev)).measurement, lambda line: None)
    assert scores["spearman"] == pytest.approx(
        result["scores"]["dev"]["spearman"], abs=0.01
    )  # near ties may be rounded
    assert result["steps"] == 8 and -1 < result["scores"]["dev"]["spearman"] <= 1
    assert '"pooling_mode_mean_tokens": true' in Path(f"{model}/1_Pooling/config.json").read_text()
    card = Path(f"{model}/README.md").read_text()
    assert (
        "word counts" in card and "| similarity.loss | cosent |" in card and "| similarity.temperature | 0.05 |" in card
    )


def test_similarity_settings_name_trials_of_that_kind_alone(tiny_run: Path, glue: Path) -> None:
    names = {}
    for task in ("cola", "stsb-similarity"):
        inputs = inputs_of(tiny_run, glue, task)
        (problem,) = inputs.problems.values()
        configs = (inputs.config, replace(inputs.config, similarity=COSINE))
        trials = [make_trial(config, problem, inputs.initial, 0, {}, "report").name for config in configs]
        names[task] = list(zip(trials, [grid_name(config, inputs.problems, inputs.initial) for config in configs]))
        identity = identity_of(inputs.config, problem, inputs.initial, 0)
        assert ("similarity.loss" in identity) == (task == "stsb-similarity")
    assert names["cola"][0] == names["cola"][1]
    assert not set(names["stsb-similarity"][0]) & set(names["stsb-similarity"][1])


def test_the_names_of_a_trial_and_of_a_grid_do_not_change(tiny_run: Path, glue: Path) -> None:
    """A changed name would train again what is trained already. The encoder and the rows may differ by machine."""
    inputs = inputs_of(tiny_run, glue)
    vocabulary = SimpleNamespace(fingerprint="vocabulary")
    initial = SimpleNamespace(fingerprint="encoder", vocabulary=vocabulary, model=inputs.initial.model)
    ((name, problem),) = inputs.problems.items()
    problem = replace(problem, digest="rows")
    config = replace(inputs.config, placement=TrialPlacement(device="cpu"), checkpoint="m", data="d", output="o")
    assert make_trial(config, problem, initial, 0, {}, "report").name == "stsb-similarity-seed0-6326c726262b"
    assert grid_name(config, {name: problem}, initial) == "stsb-similarity-606eda59"


def test_an_own_file_has_the_columns_of_sts_b(tiny_run: Path, glue: Path, tmp_path: Path) -> None:
    config = Finetune(
        checkpoint=folder_of(str(tiny_run), 3), train=f"{glue}/STS-B/train.tsv", dev=f"{glue}/STS-B/dev.tsv",
        kind="similarity", output=str(glue / "out"), cutting=Truncation(maximum_length=32),
        recipe=Recipe(metric="pearson"),  # quicker to resample than spearman
    )  # fmt: skip
    inputs = read_inputs(config, lambda line: None)
    assert (inputs.config.text, inputs.config.pair, inputs.config.label) == ("sentence1", "sentence2", ("score",))
    (problem,) = inputs.problems.values()
    assert problem.task.kind == "similarity" and problem.train.items["second"].null_count == 0
    # a comparison reads the file again with the settings as the user gave them
    about = About(task=problem.task, cutting=problem.cutting, pooling="mean", thresholds={}, lineage={})
    module, model = build(inputs.config, problem, inputs.initial, 0), str(tmp_path / "model")
    save_tuned(model, module, about, inputs.initial.model, inputs.initial.vocabulary)
    difference = row_difference([config, config], [model, model], problem.task.name)
    assert difference is not None and difference.mean == 0


@pytest.mark.parametrize("adapter", [NoAdapter(), Bottleneck(width=4)])
def test_score_has_the_pooling_and_the_length_of_the_training(
    adapter: Adapter, tiny_run: Path, glue: Path, tmp_path: Path
) -> None:
    """With bottleneck adapters there are no files of sentence-transformers."""
    inputs = inputs_of(tiny_run, glue, similarity=Similarity(pooling="cls"), adapter=adapter)
    (problem,) = inputs.problems.values()
    about = About(task=problem.task, cutting=Truncation(maximum_length=8), pooling="cls", thresholds={}, lineage={})
    module, folder = build(inputs.config, problem, inputs.initial, 0), str(tmp_path / "model")
    files = tuned_files(about, inputs.initial.model, plain=isinstance(adapter, NoAdapter))
    save_tuned(folder, module, about, inputs.initial.model, inputs.initial.vocabulary, adapter, files)
    model = load_encoders(Score(checkpoint=folder, similarity="a.tsv").measurement)[MODEL]
    assert (model.recipe.pooling, model.embedding_length) == ("cls", 8)
    states = model.cls([" ".join(["kar"] * 6)])
    found = model.embed([" ".join(["kar"] * 30)])
    np.testing.assert_allclose(found, states / np.linalg.norm(states), rtol=0, atol=1e-5)


def test_settings_of_similarity_are_refused_for_other_kinds(tiny_run: Path, glue: Path) -> None:
    for settings in ({"similarity": COSINE}, {"search": GridSearch(over=("similarity.loss=cosine",))}):
        with pytest.raises(
            ConfigError, match=r"^similarity.loss \(cosine\) is for kind similarity, but cola is of kind c"
        ):
            inputs_of(tiny_run, glue, "cola", **settings)


def test_a_temperature_is_refused_for_a_loss_without_one() -> None:
    with pytest.raises(ConfigError) as error:
        Similarity(loss="cosine", temperature=0.1)
    assert str(error.value) == (
        "similarity.temperature (0.1) is for similarity.loss cosent and contrastive, but similarity.loss is cosine: "
        "leave similarity.temperature out"
    )


def test_several_labels_are_refused(tiny_run: Path, glue: Path) -> None:
    config = Finetune(
        checkpoint=folder_of(str(tiny_run), 3), train=f"{glue}/STS-B/train.tsv", kind="similarity", label=("a", "b")
    )
    with pytest.raises(
        ConfigError, match=r"^label \(a, b\) names 2 columns, but a pair has one label: name one column$"
    ):
        read_inputs(config, lambda line: None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"recipe": Recipe(rows_per_slot=8)},
            "recipe.rows_per_slot (8) would split a step, but similarity.loss (cosent) compares all pairs of a step "
            "(recipe.rows_per_step 32): leave the setting out, or set similarity.loss cosine",
        ),
        (
            {"trials": Trials(workers=2)},
            "trials.workers (2) would split a step, but similarity.loss (cosent) compares all pairs of a step "
            "(recipe.rows_per_step 32): leave the setting out, or set similarity.loss cosine",
        ),
        (
            {"freeze": Freeze(layers=2, embeddings=True)},
            "freeze.layers (2) and freeze.embeddings (True) leave nothing to train, because stsb-similarity is of kind "
            "similarity and has no head: lower freeze.layers",
        ),
        (
            {"freeze": Freeze(layers=2), "adapter": LowRank()},
            "freeze.layers (2) leave nothing to train, because stsb-similarity is of kind similarity and has no head: "
            "lower freeze.layers",
        ),
        (
            {"recipe": Recipe(pooling="mean")},
            "recipe.pooling (mean) is for tasks with a head, but stsb-similarity is of kind similarity: set "
            "similarity.pooling instead",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict, message: str, tiny_run: Path, glue: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        inputs_of(tiny_run, glue, **settings)
    assert str(refused.value) == message
    if "split a step" in message:
        assert inputs_of(tiny_run, glue, similarity=COSINE, **settings).problems
