"""A teacher of a task: what fits it, how its logits reach the rows, and what the trials record of it."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

from pipeline.batch import TEACHER
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.placement import ModelPlacement
from pipeline.config.recipe import Recipe
from pipeline.config.task_kind import Kind
from pipeline.errors import CheckpointError, ConfigError
from pipeline.export.tuned_card import tuned_files
from pipeline.files import storage
from pipeline.fine_tuned.tuned import About, TunedModel, save_tuned
from pipeline.finetune.facts import teacher_facts
from pipeline.finetune.problems import Problem, cut
from pipeline.finetune.teacher import (
    answer_texts,
    distinct_texts,
    load_teacher,
    pairs_in,
    teacher_of,
    with_logits,
    with_teacher,
)
from pipeline.finetune.trials import build, identity_of, make_trial
from pipeline.grid.planning import grid_name
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.saved.naming import ADDED
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial

MODEL = Model(layers=1, width=16, heads=2, feed_forward=32, maximum_positions=32, initializer_deviation=0.3)
CPU = torch.device("cpu")
OWN = Task(name="own", kind="classification", labels=("no", "yes"), metrics=("accuracy",))
ROWS = (("w1 w2", "no"), ("w3", "yes"), ("w4 w5", "yes"), ("w1 w2", "yes"))


def texts(rows: Sequence[tuple[str, str | None]]) -> pa.Table:
    named = [{"id": str(n), "first": first, "second": None, "label": label} for n, (first, label) in enumerate(rows)]
    return pa.Table.from_pylist(named, schema=TEXTS)


def model_of(task: Task, vocabulary: Vocabulary) -> TunedModel:
    """A model of a task with random weights."""
    generator = torch.Generator().manual_seed(1)
    module = OBJECTIVES[task.kind](MODEL, vocabulary.size, len(task.labels), generator, "cls", None).eval()
    about = About(task=task, cutting=Truncation(maximum_length=8, stride=2), pooling="cls", thresholds={}, lineage={})
    return TunedModel(about=about, model=MODEL, vocabulary=vocabulary, module=module)


def saved(folder: Path, task: Task, vocabulary: Vocabulary) -> str:
    tuned = model_of(task, vocabulary)
    save_tuned(str(folder), tuned.module, tuned.about, MODEL, vocabulary)
    return str(folder)


def initial_of(vocabulary: Vocabulary) -> Initial:
    return Initial(folder="", fingerprint="e", model=MODEL, vocabulary=vocabulary)


def problem_of(task: Task, vocabulary: Vocabulary) -> Problem:
    items = {"train": texts(ROWS), "dev": texts(ROWS)}
    if task.kind == "regression":
        items = {split: texts([(text, "1.5") for text, _ in ROWS]) for split in items}
    return cut(task, Truncation(maximum_length=16, stride=4), items, initial_of(vocabulary))


def config_of(teacher: str | None, **settings: Any) -> Finetune:
    return Finetune(checkpoint="c", train="own.csv", teacher=teacher, **settings).for_model(MODEL)


def test_labels_are_mapped_by_name(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    location = saved(tmp_path / "m", replace(OWN, labels=("yes", "no")), tiny_vocabulary)
    tuned, problem = load_teacher(location), problem_of(OWN, tiny_vocabulary)
    teacher = teacher_of(config_of(location), problem, tuned)
    assert teacher.order == (1, 0) and teacher.fingerprint == storage.sha256(f"{location}/manifest.json")[:16]
    unlabelled = texts([("w9", None), ("w3", None)])
    problem = with_teacher(problem, teacher, unlabelled, tiny_vocabulary)
    asked = distinct_texts([problem])
    assert asked["first"].to_pylist() == ["w1 w2", "w3", "w4 w5", "w9"], "each text is answered once"
    logits = answer_texts(tuned, asked, ModelPlacement(), CPU)
    taught = with_logits(problem, dict(zip(pairs_in(asked), logits, strict=True)))
    swapped = logits[:, ::-1].tolist()
    assert taught.train.rows[TEACHER].to_pylist() == [swapped[0], swapped[1], swapped[2], swapped[0]]
    assert taught.unlabelled is not None and taught.unlabelled.rows[TEACHER].to_pylist() == [swapped[3], swapped[1]]
    assert all(math.isnan(label) for label in taught.unlabelled.rows["label"].to_pylist())
    assert taught.rows_per_epoch() == 6 and taught.rows_per_epoch(1) == 3
    assert taught.splits["dev"].rows.column_names == problem.splits["dev"].rows.column_names


@pytest.mark.parametrize(("kind", "labels"), [("classification", ("1", "0")), ("regression", ())])
def test_other_kinds_and_number_labels(
    kind: Kind, labels: tuple[str, ...], tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    # transformers names labels LABEL_0 and LABEL_1 if nobody does; to a task of numbers they are 0 and 1
    of_teacher = ("LABEL_0", "LABEL_1") if labels else ()
    location = saved(tmp_path / "m", replace(OWN, kind=kind, labels=of_teacher), tiny_vocabulary)
    task = replace(OWN, kind=kind, labels=labels)
    problem = Problem(task=task, cutting=Truncation(), train=None, splits={}, digest="")  # ty: ignore[invalid-argument-type]
    assert teacher_of(config_of(location), problem, load_teacher(location)).order == ((1, 0) if labels else (0,))


@pytest.mark.parametrize(
    ("task", "teacher", "message"),
    [
        (
            OWN,
            replace(OWN, labels=("no", "maybe")),
            "teacher (M) has the labels no, maybe, but own has no, yes: give a model with the same labels",
        ),
        (
            OWN,
            replace(OWN, kind="multilabel"),
            "teacher (M) is of kind multilabel, but own is of kind classification: give a model of that kind",
        ),
        (
            replace(OWN, kind="tags"),
            replace(OWN, kind="tags"),
            "teacher (M) is for classification, multilabel, regression, ranking, but own is of kind tags: leave "
            "--teacher out",
        ),
        (
            replace(OWN, name="rte"),
            replace(OWN, name="qnli"),
            "teacher (M) was fine-tuned on qnli, and the task is rte: give a model of rte",
        ),
        (
            OWN,
            replace(OWN, paired=True),
            "teacher (M) was fine-tuned on pairs of texts, but own has single texts: give a model of single texts",
        ),
    ],
)
def test_a_teacher_of_something_else_is_refused(
    task: Task, teacher: Task, message: str, tiny_vocabulary: Vocabulary
) -> None:
    problem = Problem(task=task, cutting=Truncation(), train=None, splits={}, digest="")  # ty: ignore[invalid-argument-type]
    tuned = model_of(replace(teacher, kind="classification"), tiny_vocabulary)
    tuned = replace(tuned, about=replace(tuned.about, task=teacher, lineage={"digest": "d"}))
    with pytest.raises(ConfigError) as refused:
        teacher_of(config_of("M"), problem, tuned)
    assert str(refused.value) == message


def test_a_model_without_a_task_head_is_no_teacher(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertForMaskedLM"]}))
    with pytest.raises(
        CheckpointError,
        match=r"^teacher: .*: config.json: architectures is 'BertForMaskedLM', so the model has no head",
    ):
        load_teacher(str(tmp_path))
    with pytest.raises(CheckpointError, match=r"^teacher: .* has no task.json: give a folder that fine-tuning wrote"):
        load_teacher(str(tmp_path / "nothing"))


def test_trials_are_named_after_their_teacher_and_record_it(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    location = saved(tmp_path / "m", OWN, tiny_vocabulary)
    plain, initial, config = problem_of(OWN, tiny_vocabulary), initial_of(tiny_vocabulary), config_of(location)
    teacher = teacher_of(config, plain, load_teacher(location))

    def names(config: Finetune, problem: Problem) -> tuple[str, str]:
        trial = make_trial(config, problem, initial, 0, {}, "report").name
        return trial, grid_name(config, {"own": problem}, initial)

    taught = with_teacher(plain, teacher, None, tiny_vocabulary)
    more, others = (with_teacher(plain, teacher, texts([(word, None)]), tiny_vocabulary) for word in ("w8", "w9"))
    other = with_teacher(plain, replace(teacher, fingerprint="other"), None, tiny_vocabulary)
    hotter = replace(config, recipe=Recipe(temperature=4.0))
    lighter = replace(config, recipe=Recipe(teacher_weight=0.1))
    cases = [
        *((config_of(None), plain), (config, taught), (config, more), (config, others), (config, other)),
        *((hotter, taught), (lighter, taught)),
    ]
    for kind in zip(*(names(*case) for case in cases), strict=True):
        assert len(set(kind)) == len(cases)
    assert names(replace(config, teacher="moved"), taught) == names(config, taught), "its files count, not their place"
    identity = identity_of(config, more, initial, 0)
    assert identity["teacher"] == teacher.fingerprint and identity["recipe.temperature"] == 2.0
    without = identity_of(config_of(None), plain, initial, 0)
    assert not ADDED.keys() & without.keys(), "trials of earlier versions have the same names"
    assert names(config_of(None), plain)[1] == "own-17f16aea", "and so have their grids"
    assert not {"teacher", "unlabelled", "recipe.temperature", "recipe.teacher_weight"} & without.keys()
    assert teacher_facts(hotter, more) == {
        "checkpoint": location, "name": "m", "fingerprint": teacher.fingerprint, "temperature": 4.0, "weight": 0.5,
        "unlabelled rows": 1,
    }  # fmt: skip


def test_a_trial_s_module_has_the_weights_of_the_recipe(tiny_vocabulary: Vocabulary) -> None:
    problem, initial = problem_of(OWN, tiny_vocabulary), initial_of(tiny_vocabulary)
    config = replace(config_of("M", random_weights=True), recipe=Recipe(temperature=3.0, teacher_weight=0.25))
    tuned = model_of(OWN, tiny_vocabulary)
    tuned = replace(tuned, about=replace(tuned.about, lineage={"digest": "d" * 20, "trial": "own-seed0-1"}))
    taught = replace(problem, teacher=teacher_of(config, problem, tuned))
    assert taught.teacher is not None and taught.teacher.name == "own-seed0-1"
    module = build(config, taught, initial, 0)
    assert module.weights == {"task": 0.75, "teacher": 0.25} and module.temperature == 3.0
    assert build(config, problem, initial, 0).weights == {"task": 1.0}


def test_the_card_names_the_teacher_without_a_path_of_this_machine(tiny_vocabulary: Vocabulary) -> None:
    about = model_of(OWN, tiny_vocabulary).about
    facts = {"checkpoint": "/home/x/output/finetune/own-seed0-1/model", "weight": 0.5, "temperature": 2.0}
    lineage = {"checkpoint": "c", "teacher": facts | {"unlabelled rows": 1_234}}
    card = tuned_files(replace(about, lineage=lineage), MODEL)["README.md"]
    assert "| teacher | own-seed0-1/model |" in card and "/home/x" not in card and "1,234" in card
    assert "| teacher |" not in tuned_files(about, MODEL)["README.md"]


def test_passages_have_the_logits_of_their_text(tiny_vocabulary: Vocabulary) -> None:
    items = {"train": texts([(" ".join(["w1"] * 30), "no"), ("w3", "yes")]), "dev": texts(ROWS)}
    cutting = Truncation(maximum_length=12, stride=2, passages=True)
    problem = cut(OWN, cutting, items, initial_of(tiny_vocabulary))
    tuned = model_of(OWN, tiny_vocabulary)
    tuned = replace(tuned, about=replace(tuned.about, lineage={"digest": "d"}))
    problem = with_teacher(problem, teacher_of(config_of("M"), problem, tuned), None, tiny_vocabulary)
    logits = dict(zip(pairs_in(distinct_texts([problem])), np.array([[1.0, 2.0], [3.0, 4.0]]), strict=True))
    rows = with_logits(problem, logits).train.rows
    assert rows["row"].to_pylist() == [0, 0, 0, 0, 1]
    assert rows[TEACHER].to_pylist() == [[1.0, 2.0]] * 4 + [[3.0, 4.0]]
