"""Trials of losses that compare matching texts, from files to the model that is scored; and the settings that fit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune, GridSearch, Trials
from pipeline.config.predict import Score
from pipeline.config.recipe import Recipe
from pipeline.config.similarity import KIND_OF_LOSS, LOSSES_WITH, ROWS_OF_KIND, Loss, Similarity
from pipeline.embed.similarity import score_triplets
from pipeline.errors import ConfigError, DataError
from pipeline.fine_tuned.model import open_tuned
from pipeline.finetune.settings import warnings
from pipeline.finetune.trials import load_or_train, make_trial
from pipeline.grid.inputs import GridInputs, read_inputs
from pipeline.grid.testing import predict_settings, score_settings
from pipeline.objectives import matching, similarity
from pipeline.predict.model_score import score_model
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.tensors import read_tensors
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.tables import is_held_out


def matches(glue: Path) -> str:
    """A file of matching texts with a negative text: each sentence of STS-B with the pair's, and another's pair."""
    lines = [line.split("\t") for line in (glue / "STS-B/train.tsv").read_text().splitlines()[1:]]
    others = lines[1:] + lines[:1]
    rows = [{"anchor": a[7], "positive": a[8], "negative": b[8]} for a, b in zip(lines, others)]
    (glue / "triplets.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(glue / "triplets.jsonl")


def config_of(tiny_run: Path, glue: Path, loss: str, **settings) -> Finetune:
    return Finetune(
        checkpoint=folder_of(str(tiny_run), 3), train=matches(glue), test=f"{glue}/STS-B/dev.tsv", kind="similarity",
        output=str(glue / "out"), cutting=Truncation(maximum_length=32), recipe=Recipe(epochs=1, rows_per_step=8),
        similarity=Similarity(loss=loss), **settings,
    )  # fmt: skip


def inputs_of(tiny_run: Path, glue: Path, loss: str, **settings) -> GridInputs:
    return read_inputs(config_of(tiny_run, glue, loss, **settings), lambda line: None)


def test_every_loss_has_a_kind_with_its_parts() -> None:
    assert set(KIND_OF_LOSS) == set(get_args(Loss))
    assert LOSSES_WITH == {
        "temperature": ("cosent", "contrastive"), "margin": ("triplet",), "negatives": ("contrastive", "triplet")
    }  # fmt: skip
    computed = {"similarity": similarity.COMPUTED, "matching": matching.COMPUTED}
    assert {kind: set(losses) for kind, losses in computed.items()} == {
        kind: {loss for loss, of in KIND_OF_LOSS.items() if of == kind} for kind in computed
    }
    vectors = {kind for kind, handlers in KINDS.items() if handlers.makes_vectors}
    assert set(KIND_OF_LOSS.values()) == set(ROWS_OF_KIND) == vectors


@pytest.mark.parametrize("loss", ["contrastive", "triplet"])
def test_a_trained_model_makes_the_vectors_of_its_trial(loss: str, tiny_run: Path, glue: Path) -> None:
    lines: list[str] = []
    inputs = read_inputs(config_of(tiny_run, glue, loss), lines.append)
    (problem,) = inputs.problems.values()
    assert any("negative texts per row: 1 to 1; tokens" in line for line in lines)
    trial = make_trial(inputs.config, problem, inputs.initial, 0, {}, "report")
    result = load_or_train(trial, problem, inputs.initial)
    dev = problem.splits["dev"].items.to_pylist()
    rows = [{"anchor": row["first"], "positive": row["second"], "negative": row["negatives"][0]} for row in dev]
    (glue / "dev.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    model = f"{trial.folder}/model"
    scores = score_triplets(Score(checkpoint=model, triplets=f"{glue}/dev.jsonl"), lambda line: None)
    assert result["scores"]["dev"]["triplet_accuracy"] == pytest.approx(scores["accuracy"], abs=0.01)
    assert open_tuned(model).about.task.kind == "similarity"
    card = Path(f"{model}/README.md").read_text()
    own = "similarity.temperature | 0.05" if loss == "contrastive" else "similarity.margin | 5.0"
    assert "word counts" in card and f"| similarity.loss | {loss} |" in card and f"| {own} |" in card
    # the test file has pairs with a score, and its columns are found
    settings = score_settings(inputs.config, problem.task, model)
    assert settings.label == ("score",) and set(score_model(settings, lambda line: None)) == {"spearman", "pearson"}
    assert predict_settings(inputs.config, problem.task, model).text == "sentence1"


def relations(glue: Path, split: str) -> str:
    """A file of pairs with a class: whether the score of a pair of STS-B is above 1."""
    lines = [line.split("\t") for line in (glue / f"STS-B/{split}.tsv").read_text().splitlines()[1:]]
    rows = [f"{line[7]}\t{line[8]}\t{'near' if float(line[9]) > 1 else 'far'}" for line in lines]
    (glue / f"{split}.tsv").write_text("\n".join(["premise\thypothesis\tlabel", *rows]) + "\n")
    return f"{glue}/{split}.tsv"


def test_a_model_trained_on_classes_is_saved_without_its_head(tiny_run: Path, glue: Path) -> None:
    config = config_of(tiny_run, glue, "softmax")
    config = replace(config, train=relations(glue, "train"), dev=relations(glue, "dev"))
    inputs = read_inputs(config, lambda line: None)
    (problem,) = inputs.problems.values()
    assert (problem.task.labels, problem.task.metrics) == (("far", "near"), ("accuracy",))
    trial = make_trial(inputs.config, problem, inputs.initial, 0, {}, "report")
    result, model = load_or_train(trial, problem, inputs.initial), f"{trial.folder}/model"
    assert 0 < result["scores"]["dev"]["accuracy"] <= 1
    assert all(name.startswith("bert.") for name in read_tensors(f"{model}/model.safetensors"))
    card = Path(f"{model}/README.md").read_text()
    assert "model-index" not in card and "| dev accuracy |" in card
    assert (
        "a head that was used in training and is not part of the model" in card
        and "| similarity.loss | softmax |" in card
    )
    assert json.loads(Path(f"{model}/config.json").read_text())["architectures"] == ["BertModel"]
    settings = score_settings(inputs.config, problem.task, model)
    assert set(score_model(settings, lambda line: None)) == {"spearman", "pearson"}


def test_truncated_vectors_are_trained_and_scored(tiny_run: Path, glue: Path) -> None:
    config = replace(config_of(tiny_run, glue, "cosent"), train=f"{glue}/STS-B/train.tsv", dev=f"{glue}/STS-B/dev.tsv")
    inputs = read_inputs(replace(config, similarity=Similarity(dimensions=(8, 16, 32))), lambda line: None)
    (problem,) = inputs.problems.values()
    trial = make_trial(inputs.config, problem, inputs.initial, 0, {}, "report")
    dev, model = load_or_train(trial, problem, inputs.initial)["scores"]["dev"], f"{trial.folder}/model"
    assert set(dev) == {f"{name}{at}" for name in ("spearman", "pearson") for at in ("", "@8", "@16")}
    assert len({dev["spearman"], dev["spearman@8"], dev["spearman@16"]}) == 3
    scores = score_model(score_settings(inputs.config, problem.task, model), lambda line: None)
    assert scores == pytest.approx(dev, abs=0.01)  # the test file is the development file
    card = Path(f"{model}/README.md").read_text()
    assert "The first 8, 16 numbers of a vector are a vector too" in card and "truncate_dim=16" in card
    assert "| similarity.dimensions | 8, 16, 32 |" in card and "| dev spearman@8 |" in card


def test_dimensions_that_do_not_fit_are_refused(tiny_run: Path, glue: Path) -> None:
    for dimensions, message in (
        ((16, 8), "similarity.dimensions (16, 8) must increase: give each length once, the shortest first"),
        ((8, 8), "similarity.dimensions (8, 8) must increase: give each length once, the shortest first"),
        ((0, 8), "similarity.dimensions (0, 8) must be at least 1"),
    ):
        with pytest.raises(ConfigError) as refused:
            Similarity(dimensions=dimensions)
        assert str(refused.value) == message
    with pytest.raises(ConfigError) as refused:
        Similarity(loss="triplet", dimensions=(8, 32))
    assert str(refused.value) == (
        "similarity.margin (5) must be below 2 with similarity.dimensions (8, 32), because truncated vectors have "
        "length 1 and distances of at most 2: set similarity.margin 0.5"
    )
    config = replace(config_of(tiny_run, glue, "contrastive"), test=None)
    with pytest.raises(
        ConfigError, match=r"^similarity.dimensions \(64\) must be at most the checkpoint's width \(32\)$"
    ):
        long = Similarity(loss="contrastive", dimensions=(8, 64))
        read_inputs(replace(config, similarity=long), lambda line: None)
    with pytest.raises(ConfigError, match=r"^search.over \(similarity.dimensions=8\) must be NAME=VALUE"):
        read_inputs(replace(config, search=GridSearch(over=("similarity.dimensions=8",))), lambda line: None)
    inputs = read_inputs(replace(config, similarity=replace(config.similarity, dimensions=(8,))), lambda line: None)
    assert (
        "warning: similarity.dimensions (8) leaves out the encoder's width (32): whole vectors are scored, but not "
        "trained" in warnings(inputs.config, inputs.settings, inputs.initial.model)
    )


def test_trials_of_another_margin_have_another_name(tiny_run: Path, glue: Path) -> None:
    inputs = inputs_of(tiny_run, glue, "triplet")
    (problem,) = inputs.problems.values()
    names = {
        make_trial(replace(inputs.config, similarity=settings), problem, inputs.initial, 0, {}, "report").name
        for settings in (Similarity(loss=loss, **more) for loss, more in (("triplet", {}), ("contrastive", {})))
    }
    margin = replace(inputs.config, similarity=Similarity(loss="triplet", margin=1.0))
    assert len(names | {make_trial(margin, problem, inputs.initial, 0, {}, "report").name}) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"trials": Trials(workers=16)},
            "trials.workers (16) must be at most recipe.rows_per_step (8): each worker needs a row of every step",
        ),
        (
            {"search": GridSearch(over=("similarity.loss=contrastive,cosent",))},
            "search.over tries similarity.loss cosent, which is for pairs of texts with a score, but similarity.loss "
            "is contrastive, which is for texts, each with another text that matches it: set similarity.loss to one of "
            "the losses to try, which must be for the same rows",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict, message: str, tiny_run: Path, glue: Path) -> None:
    config = config_of(tiny_run, glue, "contrastive")
    with pytest.raises(ConfigError) as refused:
        read_inputs(replace(config, **settings), lambda line: None)
    assert str(refused.value) == message


def test_losses_that_need_negative_texts_are_refused_without_them(tiny_run: Path, glue: Path) -> None:
    config = config_of(tiny_run, glue, "contrastive")
    pairs = [{"anchor": f"kar {number}", "positive": f"sup {number}"} for number in range(40)]
    Path(str(config.train)).write_text("".join(f"{json.dumps(row)}\n" for row in pairs))
    assert read_inputs(config, lambda line: None).problems["triplets"].task.metrics == ("match_accuracy",)
    for settings, message in (
        (
            {"search": GridSearch(over=("similarity.loss=contrastive,triplet",))},
            "similarity.loss (triplet) compares texts with negative texts, but triplets has none: name their column "
            "with --negative, or set similarity.loss contrastive",
        ),
        (
            {"recipe": Recipe(rows_per_step=1)},
            "recipe.rows_per_step (1) must be at least 2, because similarity.loss (contrastive) compares the texts of "
            "a step, and triplets has no negative texts",
        ),
    ):
        with pytest.raises(ConfigError) as refused:
            read_inputs(replace(config, **settings), lambda line: None)
        assert str(refused.value) == message


def test_a_loss_for_other_rows_than_those_of_the_task_is_refused(tiny_run: Path, glue: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        config = Finetune(checkpoint=folder_of(str(tiny_run), 3), data=str(glue), task=("stsb-similarity",))
        settings = replace(config, output=str(glue / "out"), similarity=Similarity(loss="triplet"))
        read_inputs(settings, lambda line: None)
    assert str(refused.value) == (
        "similarity.loss (triplet) is for texts, each with another text that matches it, but stsb-similarity has pairs "
        "of texts with a score: choose one of cosent, cosine"
    )


def test_a_margin_is_refused_for_a_loss_without_one() -> None:
    with pytest.raises(ConfigError) as refused:
        Similarity(margin=1.0)
    assert str(refused.value) == (
        "similarity.margin (1) is for similarity.loss triplet, but similarity.loss is cosent: leave "
        "similarity.margin out"
    )


def test_development_rows_set_aside_without_negative_texts_are_refused(tiny_run: Path, glue: Path) -> None:
    config = replace(config_of(tiny_run, glue, "contrastive"), test=None)
    texts = [f"kar {number}" for number in range(40)]
    held_out = {text for text in texts if is_held_out(text)}
    rows = [
        {"anchor": text, "positive": f"sup {text}", "negative": "" if text in held_out else "lost"} for text in texts
    ]
    Path(str(config.train)).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(DataError) as refused:
        read_inputs(config, lambda line: None)
    assert str(refused.value) == (
        f"none of the {len(held_out)} rows of triplets dev has a negative text, but training rows have some, so "
        "triplet_accuracy cannot be computed: name a development file with --dev, or set search.folds lower"
    )
