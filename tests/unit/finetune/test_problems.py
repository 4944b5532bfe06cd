"""Data held back for selection, and the settings that change a trial's name."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.config.adapters import Freeze, LowRank
from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune, Trials
from pipeline.config.model import Model
from pipeline.config.model_parts import DisentangledAttention, NoPositions
from pipeline.config.placement import TrialPlacement
from pipeline.config.recipe import Recipe
from pipeline.config.training import LinearDecay
from pipeline.errors import ConfigError, DataError
from pipeline.fine_tuned.record import COLUMNS, TextColumns
from pipeline.finetune.facts import text_columns
from pipeline.finetune.problems import Problem, digest, download, read_problems, texts, with_dev
from pipeline.finetune.trial_rows import label_mean_and_deviation
from pipeline.finetune.trials import build, identity_of, make_trial
from pipeline.tables.squad import Question
from pipeline.tasks import sequences
from pipeline.tasks.glue import TASKS
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.tables import is_held_out, read_split
from pipeline.tasks.tagging import Sentence, Utterance
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial

CLASSES = Task(name="own", kind="classification", labels=("0", "1"), metrics=("accuracy",))
QUESTIONS = Task(name="own", kind="spans", metrics=("f1",))


def table(rows: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": str(n), "first": f"text {n}", "second": None, "label": str(n % 2)} for n in range(rows)], schema=TEXTS
    )


def test_a_tenth_is_set_aside_by_a_hash_and_given_files_are_left_alone() -> None:
    said: list[str] = []
    train, splits = with_dev(CLASSES, {"train": table(400)}, said.append)
    assert (
        20 <= len(splits["dev"]) <= 60
        and len(train) + len(splits["dev"]) == 400
        and not set(texts(train)) & set(texts(splits["dev"]))
    )
    assert said == [f"no --dev: {len(splits['dev'])} of 400 rows, chosen by a hash of their text, are set aside as dev"]
    longer, again = with_dev(CLASSES, {"train": table(500)}, said.append)
    assert set(texts(splits["dev"])) <= set(texts(again["dev"]))  # more rows move none of the others
    assert with_dev(CLASSES, {"train": table(4), "dev": table(2)}, said.append)[1]["dev"].num_rows == 2
    with pytest.raises(
        DataError, match=r"^train has 1 rows, too few to set some aside: name a development file with --dev$"
    ):
        with_dev(CLASSES, {"train": table(1)}, said.append)


def test_labels_that_training_would_lack_are_not_set_aside() -> None:
    everything = table(400)
    rare = next(place for place, text in enumerate(texts(everything)) if is_held_out(text))
    labels = [label if place != rare else "rare" for place, label in enumerate(everything["label"].to_pylist())]
    marked = everything.set_column(3, everything.schema.field("label"), pa.array(labels))
    train, splits = with_dev(CLASSES, {"train": marked}, lambda line: None)
    assert "rare" in train["label"].to_pylist() and set(splits["dev"]["label"].to_pylist()) == {"0", "1"}
    several = everything.set_column(
        3, everything.schema.field("label"), pa.array([json.dumps([label, "x"]) for label in labels])
    )
    assert (
        '["rare", "x"]'
        in with_dev(replace(CLASSES, kind="multilabel"), {"train": several}, lambda line: None)[0]["label"].to_pylist()
    )
    sentences = [Sentence(words=(text,), tags=(label,)) for text, label in zip(texts(everything), labels)]
    assert any(
        one.tags == ("rare",)
        for one in with_dev(replace(CLASSES, kind="tags"), {"train": sentences}, lambda line: None)[0]
    )
    utterances = [Utterance(words=one.words, tags=("O",), intent=label) for one, label in zip(sentences, labels)]
    assert any(
        one.intent == "rare"
        for one in with_dev(replace(CLASSES, kind="tags"), {"train": utterances}, lambda line: None)[0]
    )
    values = with_dev(replace(CLASSES, kind="regression"), {"train": marked}, lambda line: None)[1]["dev"]
    assert "rare" in values["label"].to_pylist()  # each value may be there once


def test_a_file_with_a_known_tasks_name_is_not_that_task(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    said: list[str] = []
    (tmp_path / "stsb.csv").write_text("text,label\n" + "".join(f"text {n},{n}\n" for n in range(60)))
    config = Finetune(checkpoint="c", train=str(tmp_path / "stsb.csv"), output=str(tmp_path))
    (found,) = read_problems(
        config, Initial(folder="f", fingerprint="e", model=Model(), vocabulary=tiny_vocabulary), said.append
    )
    assert found.task.name == "own-stsb" and found.task.kind == "regression"
    rows = found.train.rows.num_rows
    assert said[1] == f"own-stsb train: {rows} rows, regression"
    assert said[4] == (
        f"own-stsb train: warning: the labels are {rows} whole numbers, which are taken as values: if they are "
        "classes, pass --kind classification"
    )


def test_a_task_named_like_a_split_and_many_class_numbers_are_told(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    said: list[str] = []
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"text {n},{n % 25}\n" for n in range(60)))
    initial = Initial(folder="f", fingerprint="e", model=Model(), vocabulary=tiny_vocabulary)
    config = Finetune(checkpoint="c", train=str(tmp_path / "train.csv"), dev=str(tmp_path / "train.csv"))
    read_problems(config, initial, said.append)
    assert said[:2] == [
        "task train, split train: 60 rows, classification of 25 labels",
        "task train, split dev: 60 rows",
    ]
    line = (
        "task train, split train: the labels are the whole numbers from 0 to 24, which are taken as classes: if they "
        "are values, pass --kind regression"
    )
    assert said.count(line) == 1
    read_problems(replace(config, kind="classification"), initial, said.append)
    assert said.count(line) == 1


def test_own_values_are_learnt_standardised_and_published_tasks_as_published(
    glue: Path, tiny_vocabulary: Vocabulary
) -> None:
    train = sequences.prepare(
        TASKS["stsb"],
        read_split(TASKS["stsb"], str(glue), "train"),
        tiny_vocabulary,
        Truncation(maximum_length=32, stride=8),
    )
    problem = Problem(
        task=TASKS["stsb"], cutting=Truncation(maximum_length=32, stride=8), train=train, splits={}, digest="d"
    )
    initial = Initial(
        folder="f", fingerprint="e", model=Model(layers=1, width=8, heads=2, feed_forward=8), vocabulary=tiny_vocabulary
    )
    own, known = (
        Finetune(checkpoint="c", train="a.csv", random_weights=True),
        Finetune(checkpoint="c", task=("stsb",), random_weights=True),
    )
    modules = [build(config, problem, initial, 0) for config in (own, known)]
    assert [(one.mean, one.deviation) for one in modules] == [label_mean_and_deviation(train.rows), (0.0, 1.0)]
    assert (
        make_trial(own, problem, initial, 0, {}, "report").name
        != make_trial(known, problem, initial, 0, {}, "report").name
    )
    recomputing = replace(own, placement=TrialPlacement(recompute=True, recompute_products=False))
    encoder = build(recomputing, problem, initial, 0).encoder
    assert encoder.recompute and not encoder.recompute_products and not modules[0].encoder.recompute


def test_questions_of_one_context_stay_together() -> None:
    questions = [Question(id=str(n), question="a", context=f"context {n // 5}", answers=()) for n in range(300)]
    train, splits = with_dev(QUESTIONS, {"train": questions}, lambda line: None)
    assert not {one.context for one in train} & {one.context for one in splits["dev"]} and splits["dev"]


def test_only_glue_is_downloaded(tmp_path: Path) -> None:
    config = Finetune(checkpoint="c", task=("squad1", "sst2"), output=str(tmp_path))
    initial = Initial(folder="f", fingerprint="e", model=Model(), vocabulary=None)
    with pytest.raises(ConfigError, match=r"^task \(sst-2\) is unknown; did you mean sst2\?$"):
        read_problems(replace(config, task=("sst-2",), data=str(tmp_path / "none")), initial, lambda line: None)
    with pytest.raises(
        ConfigError, match=r"^data is not given: name the folder with the files of squad1; only GLUE can be downloaded$"
    ):
        download(config, config.task, str(tmp_path), lambda line: None)


def test_a_trial_is_named_by_all_that_shapes_it_and_nothing_else(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    cutting = Truncation(maximum_length=32, stride=8)
    train = sequences.prepare(TASKS["stsb"], read_split(TASKS["stsb"], str(glue), "train"), tiny_vocabulary, cutting)
    problem = Problem(task=TASKS["stsb"], cutting=cutting, train=train, splits={}, digest=digest([train]))
    initial = Initial(folder="f", fingerprint="e", model=Model(), vocabulary=tiny_vocabulary)
    config = Finetune(checkpoint="c", task=("stsb",), data="d")

    def name(config: Finetune, problem: Problem = problem, seed: int = 0) -> str:
        return make_trial(config, problem, initial, seed, {}, "report").name

    assert name(config) == name(
        replace(
            config,
            checkpoint="other",
            placement=TrialPlacement(threads=3),
            trials=Trials(cpus=2),
            seeds=9,
            minutes=3,
            output="o",
        )
    ) and name(config).startswith("stsb-seed0-")
    others = [
        name(config, seed=1), name(replace(config, recipe=Recipe(epochs=4))),
        name(replace(config, optimizer=replace(config.optimizer, learning_rate=1e-4))),
        name(replace(config, adapter=LowRank())), name(replace(config, random_weights=True)),
        name(config, replace(problem, cutting=Truncation(maximum_length=16, stride=8))),
        name(config, replace(problem, digest="other")),
    ]  # fmt: skip
    others += [
        name(config, replace(problem, task=replace(TASKS["stsb"], labels=("other",)))),
        name(replace(config, schedule=LinearDecay(warmup_share=0.2))), name(replace(config, freeze=Freeze(layers=1))),
        name(replace(config, vocabulary=replace(config.vocabulary, lowercase=False))),
    ]  # fmt: skip
    assert len({name(config), *others}) == 12
    identity = identity_of(config, problem, initial, 0)
    assert identity["rows"] == problem.digest
    deberta = {"family": "deberta", "attention": DisentangledAttention(), "positions": NoPositions(), "segments": 0}
    of_deberta = replace(initial, model=replace(initial.model, **deberta))
    adapted = replace(config, adapter=LowRank())
    assert "freezes_all" in identity_of(adapted, problem, of_deberta, 0)  # earlier versions trained more
    assert "freezes_all" not in identity_of(adapted, problem, initial, 0) | identity_of(config, problem, of_deberta, 0)
    decaying = replace(config, optimizer=replace(config.optimizer, layer_decay=0.9))
    assert "freezes_all" in identity_of(decaying, problem, of_deberta, 0)
    pre_norm = replace(initial, model=replace(initial.model, block="pre-norm", layers=2))
    frozen = [identity_of(replace(config, freeze=Freeze(layers=layers)), problem, pre_norm, 0) for layers in (1, 2)]
    assert ["freezes_all" in identity for identity in frozen] == [False, True]
    few, windows = replace(config, recipe=Recipe(training_rows=1)), Truncation(maximum_length=16, passages=True)
    in_passages = replace(problem, cutting=windows)
    assert identity_of(few, in_passages, initial, 0)["whole_texts"]  # earlier versions took single passages
    assert "whole_texts" not in identity_of(few, problem, initial, 0) | identity_of(config, in_passages, initial, 0)
    slower = replace(config, optimizer=replace(config.optimizer, word_embeddings_rate=0.1))
    assert identity_of(slower, problem, initial, 0)["optimizer.word_embeddings_rate"] == 0.1


def test_the_digest_is_of_ids_and_true_answers_of_all_splits(glue: Path, tiny_vocabulary: Vocabulary) -> None:
    def prepared(split: str, length: int = 32, relabelled: bool = False) -> Prepared:
        items = read_split(TASKS["stsb"], str(glue), split)
        if relabelled:
            items = items.set_column(3, items.schema.field("label"), pa.array(["1.5", *items["label"].to_pylist()[1:]]))
        return sequences.prepare(TASKS["stsb"], items, tiny_vocabulary, Truncation(maximum_length=length, stride=4))

    train, dev = prepared("train"), prepared("dev")
    assert digest([train, dev]) == digest([prepared("train"), prepared("dev")])
    # A dev file with another label, another length, splits the other way round.
    assert (
        len(
            {
                digest([train, dev]),
                digest([train, prepared("dev", relabelled=True)]),
                digest([prepared("train", 8), dev]),
                digest([dev, train]),
                digest([train]),
            }
        )
        == 5
    )


@pytest.mark.parametrize(
    ("settings", "kind", "columns"),
    [
        ({"train": "/a.csv", "text": "review"}, "classification", TextColumns(text="review")),
        ({"train": "/a.csv", "pair": "reply"}, "classification", TextColumns(pair="reply")),
        ({"train": "/a.csv", "choices": ("a", "b")}, "choices", TextColumns(choices=("a", "b"))),
        ({"train": "/a.conll"}, "tags", TextColumns()),
        ({"task": ("mrpc",), "data": "/d"}, "mrpc", TextColumns(text="#1 String", pair="#2 String")),
        ({"task": ("squad1",), "data": "/d"}, "spans", TextColumns()),
    ],
)
def test_columns_of_texts_are_recorded(settings: dict, kind: str, columns: TextColumns) -> None:
    task = TASKS.get(kind) or Task(name="own", kind=kind, metrics=("accuracy",))  # ty: ignore[invalid-argument-type]
    assert text_columns(Finetune(checkpoint="/m", **settings), task) == columns
    assert TextColumns.of({COLUMNS: columns.recorded()}) == columns and TextColumns.of({}) == TextColumns()
