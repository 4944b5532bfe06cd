"""Cross-validation: which rows are in which fold, the problems that folds make, and the table of their scores."""

import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.finetune import Finetune, GridSearch
from pipeline.config.model import Model
from pipeline.config.predict import Compare
from pipeline.errors import ConfigError, DataError
from pipeline.finetune.folds import by_task, fold_numbers
from pipeline.finetune.problems import Problem, read_problems, texts
from pipeline.finetune.table import Reported, mean_baseline, reported, select, table
from pipeline.finetune.trials import Trial, make_trial
from pipeline.tables.squad import Question
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.initial import Initial

CLASSES = Task(name="own", kind="classification", labels=("0", "1"), metrics=("accuracy",))
CONFIG = Finetune(checkpoint="c", task=("cola",))


def rows(*pairs: tuple[str, str]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": "1", "first": text, "second": None, "label": label} for text, label in pairs], schema=TEXTS
    )


@given(st.lists(st.integers(0, 4), min_size=12, max_size=90), st.integers(2, 6))
def test_every_class_has_as_many_rows_in_each_fold(labels: list[int], folds: int) -> None:
    items = rows(*((f"text {place}", str(label)) for place, label in enumerate(labels)))
    found = fold_numbers(CLASSES, items, folds)
    assert (found == fold_numbers(CLASSES, items, folds)).all() and set(found) <= set(range(folds))
    counts = np.array([np.bincount(found[np.array(labels) == label], minlength=folds) for label in set(labels)])
    assert (np.ptp(counts, axis=1) <= 1).all() and np.ptp(counts.sum(axis=0)) <= 1


def test_folds_are_drawn_and_not_cut_from_the_order_of_the_file() -> None:
    found = fold_numbers(CLASSES, rows(*((f"text {place}", "0") for place in range(100))), 5)
    assert len({tuple(found[start : start + 5]) for start in range(0, 100, 5)}) > 10


def test_equal_texts_and_contexts_stay_together() -> None:
    found = fold_numbers(
        CLASSES,
        rows(*((f"text  {place % 20}".replace("  ", " " * (1 + place % 2)), str(place % 2)) for place in range(60))),
        4,
    )
    assert all(len(set(found[place::20])) == 1 for place in range(20)) and np.bincount(found).tolist() == [15] * 4
    questions = [Question(id=str(n), question=f"q{n}", context=f"c{n // 5}", answers=()) for n in range(50)]
    found = fold_numbers(replace(CLASSES, kind="spans"), questions, 5)
    assert (
        all(len(set(found[place : place + 5])) == 1 for place in range(0, 50, 5))
        and np.bincount(found).tolist() == [10] * 5
    )
    with pytest.raises(
        DataError,
        match=r"^search.folds \(5\) must be at most 2, the number of different texts in train: give more rows, or "
        r"fewer folds$",
    ):
        fold_numbers(CLASSES, rows(("x", "0"), ("y", "1"), ("x", "0")), 5)


def test_each_fold_is_a_problem_whose_trials_are_named_by_it(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    said: list[str] = []
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"kar {n},{n % 2}\n" for n in range(20)))
    config = Finetune(checkpoint="c", train=str(tmp_path / "a.csv"), search=GridSearch(folds=4))
    initial = Initial(folder="f", fingerprint="e", model=Model(), vocabulary=tiny_vocabulary)
    found = read_problems(config, initial, said.append)
    assert [one.task.name for one in found] == [f"a-fold{n}of4" for n in (1, 2, 3, 4)] and by_task(
        {one.task.name: one for one in found}
    ) == {"a": [one.task.name for one in found]}
    held_out = [texts(one.splits["dev"].items) for one in found]
    assert sorted(sum(held_out, [])) == sorted(f"kar {n}" for n in range(20)) and [len(one) for one in held_out] == [
        5,
        5,
        5,
        5,
    ]
    assert all(
        not set(texts(one.train.items)) & set(texts(one.splits["dev"].items))
        and len(one.train.items) + len(one.splits["dev"].items) == 20
        for one in found
    )
    assert (
        said[0] == "a train: 20 rows, classification of 2 labels"
        and said[-1] == "a: 4 folds of 5 rows, with equal shares of each class"
    )
    assert len({one.digest for one in found}) == 4
    names = [make_trial(config, one, initial, 3, {}, "fold").name for one in found]
    assert [name.rsplit("-", 1)[0] for name in names] == [f"a-fold{n}of4-seed3" for n in (1, 2, 3, 4)]


def test_a_fold_without_which_one_class_is_left_is_named(tmp_path: Path, tiny_vocabulary: Vocabulary) -> None:
    (tmp_path / "a.csv").write_text("text,label\nkar,0\nmir,0\nnel,0\nsup,1\n")
    config = Finetune(checkpoint="c", train=str(tmp_path / "a.csv"), search=GridSearch(folds=2))
    with pytest.raises(
        DataError,
        match=r"a.csv without fold [12] of 2: all 2 rows have the label '0'; "
        r"training needs at least two different labels$",
    ):
        read_problems(
            config, Initial(folder="f", fingerprint="e", model=Model(), vocabulary=tiny_vocabulary), lambda line: None
        )


def fold(name: str) -> Problem:
    return Problem(
        task=replace(CLASSES, name=name),
        cutting=CONFIG.cutting,
        train=None,
        splits={"dev": None},
        digest="d",
        fold_of="own",
    )  # type: ignore[arg-type]


def test_a_setting_is_selected_by_the_mean_over_folds_and_seeds() -> None:
    scores = {
        ("own-fold1of2", 1): (0.9, 0.2),
        ("own-fold2of2", 1): (0.9, 0.9),
        ("own-fold1of2", 2): (0.8, 0.8),
        ("own-fold2of2", 2): (0.8, 0.8),
    }
    trials = [
        Trial(
            problem=name, config=CONFIG, seed=seed, name=f"{name}-{rate}-{seed}", chosen={"rate": rate}, stage="select"
        )
        for name, rate in scores
        for seed in (0, 1)
    ]
    results = {
        one.name: {"scores": {"dev": {"accuracy": scores[one.problem, one.chosen["rate"]][one.seed]}}} for one in trials
    }
    assert select(trials, results, fold("own-fold1of2"), fold("own-fold2of2")) == ({"rate": 2}, pytest.approx(0.8))
    assert select(trials, results, fold("own-fold2of2")) == ({"rate": 1}, 0.9)


def test_the_table_has_mean_and_spread_over_folds_and_seeds() -> None:
    results = [
        {"scores": {"dev": {"accuracy": value}}, "collapsed": False, "best_epoch": 1, "epochs": [0], "tuned": {}}
        for value in (0.5, 0.7, 0.9, 0.7)
    ]
    baseline = mean_baseline([{"dev": {"accuracy": 0.4}}, {"dev": {"accuracy": 0.6, "PER_f1": 0.1}}])
    assert baseline == {"dev": {"accuracy": 0.5}}
    (row,) = reported(fold("own-fold1of2"), baseline, results, "", 2)
    assert row == Reported(
        task="own", name="dev accuracy", values=(0.5, 0.7, 0.9, 0.7), baseline=0.5, collapsed=0, setting="", folds=2
    )
    assert row.middle == f"70.0 ± {100 * statistics.stdev(row.values):.1f}" == "70.0 ± 16.3"
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table([row], Model()).splitlines()]
    assert lines[0] == [
        "task",
        "split and metric",
        "mean ± deviation",
        "of folds and seeds",
        "folds x seeds",
        "without a model",
    ]
    assert lines[2] == ["own", "dev accuracy", "70.0 ± 16.3", "50.0 to 90.0", "2 x 2", "50.0"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": ("sst2",)}, "search.folds (5) splits your own file: give the file with --train"),
        (
            {"train": "a.csv", "dev": "b.csv"},
            "search.folds (5) splits train, but dev (b.csv) is given: leave search.folds or dev out",
        ),
        (
            {"train": "a.csv", "test": "c.csv"},
            "search.folds (5) keeps no model, but test (c.csv) needs one: leave search.folds or test out",
        ),
        (
            {"train": "a.csv", "register": "x"},
            "search.folds (5) keeps no model, but register (x) needs one: leave search.folds or register out",
        ),
    ],
)
def test_folds_that_cannot_be_are_refused(given: dict, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Finetune(checkpoint="c", search=GridSearch(folds=5), **given)
    assert str(error.value) == message
    with pytest.raises(ConfigError, match=r"^search.folds \(1\) must be at least 2$"):
        GridSearch(folds=1)
    with pytest.raises(ConfigError, match=r"^search.folds \(5\) is for one encoder"):
        Compare(checkpoint=("a", "b"), train="a.csv", search=GridSearch(folds=5))
