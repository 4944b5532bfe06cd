"""Trials of rankings, from files to the model that is scored, that reranks and that teaches."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.batch import TEACHER
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune, GridSearch
from pipeline.config.placement import ModelPlacement
from pipeline.config.predict import Score
from pipeline.config.ranking import Loss, Ranking
from pipeline.config.recipe import Recipe
from pipeline.errors import ConfigError
from pipeline.fine_tuned.model import open_tuned
from pipeline.finetune.folds import fold_numbers
from pipeline.finetune.teacher import answer_texts, distinct_texts, pairs_in, with_logits
from pipeline.finetune.trials import load_or_train, make_trial
from pipeline.grid.inputs import GridInputs, read_inputs
from pipeline.grid.testing import predict_settings, score_settings
from pipeline.predict import cross_encoder
from pipeline.predict.model_score import score_model
from pipeline.saved.checkpoints import folder_of

QUIET = lambda line: None  # noqa: E731


def judged(glue: Path) -> str:
    """Each first text of STS-B as a query, with the second texts of its row and of two others as candidates."""
    lines = [line.split("\t") for line in (glue / "STS-B/train.tsv").read_text().splitlines()[1:]]
    rows = [
        {"query": line[7], "document": other[8], "label": int(place == 0)}
        for index, line in enumerate(lines)
        for place, other in enumerate((line, *(lines[(index + step) % len(lines)] for step in (1, 2))))
    ]
    (glue / "judged.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(glue / "judged.jsonl")


def inputs_of(tiny_run: Path, glue: Path, loss: Loss, **settings) -> GridInputs:
    usual = {
        "test": judged(glue),
        "cutting": Truncation(maximum_length=32),
        "recipe": Recipe(epochs=1, rows_per_step=8),
    }
    config = Finetune(
        checkpoint=folder_of(str(tiny_run), 3), train=judged(glue), kind="ranking", output=str(glue / "out"),
        ranking=Ranking(loss=loss), **usual | settings,
    )  # fmt: skip
    return read_inputs(config, QUIET)


@pytest.mark.parametrize("loss", ["binary", "softmax"])
def test_a_trained_model_scores_ranks_and_is_a_number_for_transformers(loss: Loss, tiny_run: Path, glue: Path) -> None:
    inputs = inputs_of(tiny_run, glue, loss)
    (problem,) = inputs.problems.values()
    assert problem.task.metrics == ("map", "mrr", "ndcg@10")
    queries = {
        split: set(rows.items["first"].to_pylist())
        for split, rows in {"train": problem.train, **problem.splits}.items()
    }
    assert not queries["train"] & queries["dev"]  # a query's candidates are all in one split
    trial = make_trial(inputs.config, problem, inputs.initial, 0, {}, "report")
    result = load_or_train(trial, problem, inputs.initial)
    model, dev = f"{trial.folder}/model", problem.splits["dev"].items
    rows = [{"query": row["first"], "document": row["second"], "label": row["label"]} for row in dev.to_pylist()]
    (glue / "dev.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    asked = Score(checkpoint=model, input=f"{glue}/dev.jsonl", text="query", pair="document")
    assert score_model(asked.measurement, QUIET) == pytest.approx(result["scores"]["dev"])
    settings = score_settings(inputs.config, problem.task, model)
    assert (settings.text, settings.pair, settings.label) == ("query", "document", ("label",))
    assert predict_settings(inputs.config, problem.task, model).pair == "document"
    config = json.loads(Path(f"{model}/config.json").read_text())
    assert config["problem_type"] == "regression" and config["id2label"] == {"0": "score"}
    encoder = cross_encoder.load(model, None, ModelPlacement(device="cpu"))
    pairs = [(row["query"], row["document"]) for row in rows]
    scores = cross_encoder.score_pairs(encoder, pairs, QUIET)
    tuned = open_tuned(model)
    expected = answer_texts(tuned, dev, ModelPlacement(device="cpu"), torch.device("cpu"))[:, 0]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert f"| ranking.loss | {loss} |" in Path(f"{model}/README.md").read_text()


def test_a_teacher_s_margins_are_learnt(tiny_run: Path, glue: Path) -> None:
    inputs = inputs_of(tiny_run, glue, "binary")
    (problem,) = inputs.problems.values()
    trial = make_trial(inputs.config, problem, inputs.initial, 0, {}, "report")
    load_or_train(trial, problem, inputs.initial)
    teacher = f"{trial.folder}/model"
    taught = inputs_of(tiny_run, glue, "margin", teacher=teacher)
    (problem,) = taught.problems.values()
    texts = distinct_texts([problem])
    logits = answer_texts(open_tuned(teacher), texts, ModelPlacement(device="cpu"), torch.device("cpu"))
    problem = with_logits(problem, dict(zip(pairs_in(texts), logits, strict=True)))
    assert [len(outputs) for outputs in problem.train.rows[TEACHER].to_pylist()] == [1] * problem.train.rows.num_rows
    trial = make_trial(taught.config, problem, taught.initial, 0, {}, "report")
    load_or_train(trial, problem, taught.initial)
    card = Path(f"{trial.folder}/model/README.md").read_text()
    assert "| teacher | " in card and "temperature" not in card
    with pytest.raises(
        ConfigError, match=r"teacher \(.*\) of a ranking needs ranking.loss margin, but ranking.loss is soft"
    ):
        inputs_of(tiny_run, glue, "softmax", teacher=teacher)
    with pytest.raises(ConfigError, match="recipe.temperature has no effect on a ranking"):
        inputs_of(tiny_run, glue, "margin", teacher=teacher, recipe=Recipe(temperature=1.0))


def test_a_teacher_of_other_answers_is_refused(tiny_run: Path, glue: Path) -> None:
    config = Finetune(
        checkpoint=folder_of(str(tiny_run), 3), data=str(glue), task=("stsb-similarity",), output=str(glue / "out"),
        cutting=Truncation(maximum_length=32), recipe=Recipe(epochs=1, rows_per_step=8),
    )  # fmt: skip
    inputs = read_inputs(config, QUIET)
    (problem,) = inputs.problems.values()
    trial = make_trial(inputs.config, problem, inputs.initial, 0, {}, "report")
    load_or_train(trial, problem, inputs.initial)
    teacher = f"{trial.folder}/model"
    with pytest.raises(ConfigError, match="is of kind similarity and does not score pairs: give a model of kind"):
        inputs_of(tiny_run, glue, "margin", teacher=teacher)


def test_the_candidates_of_a_query_are_in_one_fold(tiny_run: Path, glue: Path) -> None:
    inputs = inputs_of(tiny_run, glue, "softmax", test=None, search=GridSearch(folds=3))
    items = next(iter(inputs.problems.values())).train.items
    numbers = fold_numbers(next(iter(inputs.problems.values())).task, items, 3)
    by_query: dict[str, set[int]] = {}
    for query, number in zip(items["first"].to_pylist(), numbers.tolist()):
        by_query.setdefault(query, set()).add(number)
    assert all(len(found) == 1 for found in by_query.values()) and len(set(numbers)) == 3
