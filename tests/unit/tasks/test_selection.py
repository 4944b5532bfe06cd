"""The metric that selects: which a task can have, what it measures, and when accuracy is the wrong one."""

import numpy as np
import pytest

from pipeline.config.cutting import Truncation
from pipeline.errors import ConfigError
from pipeline.tasks import known, sequences
from pipeline.tasks.metrics.label_metrics import METRICS, RANKED, majority, score
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.selection import CHOICES, OTHER_NAMES, choices, comparable_score, selected_by, skewed
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

TWO = Task(name="spam", kind="classification", labels=("ham", "spam"), metrics=("accuracy", "macro_f1"))
THREE = Task(name="three", kind="classification", labels=("a", "b", "c"), metrics=("accuracy",))


@pytest.mark.parametrize(
    ("task", "given", "metrics"),
    [
        (TWO, None, ("accuracy", "macro_f1")),
        (TWO, "accuracy", ("accuracy", "macro_f1")),
        (TWO, "macro-f1", ("macro_f1", "accuracy")),
        (TWO, "MCC", ("matthews", "accuracy", "macro_f1")),
        (TWO, "auc", ("auc", "accuracy", "macro_f1")),
        (known.TASKS["stsb"], "mae", ("mean_absolute_error", "pearson", "spearman")),
        (known.TASKS["squad1"], "exact", ("exact", "f1")),
        (known.TASKS["conll2003"], "recall", ("recall", "f1", "precision", "accuracy")),
    ],
)
def test_the_metric_that_is_chosen_is_the_first(task: Task, given: str | None, metrics: tuple[str, ...]) -> None:
    assert selected_by(task, given).metrics == metrics


def test_a_metric_that_a_task_has_not_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(ConfigError) as refused:
        selected_by(THREE, "f1")
    assert (
        str(refused.value) == "recipe.metric (f1) is not a metric of three (classification): choose one of "
        "accuracy, macro_f1, matthews, auc, average_precision"
    )
    with pytest.raises(
        ConfigError,
        match=r"^recipe.metric \(auc\) is not a metric of stsb \(regression\): choose one of "
        "pearson, spearman, mean_absolute_error$",
    ):
        selected_by(known.TASKS["stsb"], "auc")
    with pytest.raises(
        ConfigError, match=r"^recipe.metric \(auc\) is not a metric of squad2 \(spans\): choose one of f1, exact$"
    ):
        selected_by(known.TASKS["squad2"], "auc")


def test_every_metric_that_may_select_is_there() -> None:
    assert {name for names in CHOICES.values() for name in names} == METRICS.keys() | RANKED.keys()
    assert set(OTHER_NAMES.values()) <= METRICS.keys() | RANKED.keys()
    assert choices(TWO) == ("accuracy", "macro_f1", "f1", "matthews", "auc", "average_precision")


def test_an_error_is_worth_more_where_it_is_lower() -> None:
    assert (
        comparable_score("mean_absolute_error", 0.5)
        > comparable_score("mean_absolute_error", 0.7)
        > comparable_score("mean_absolute_error", float("nan"))
    )
    assert comparable_score("f1", 0.7) > comparable_score("f1", 0.5)


def test_probabilities_are_ranked() -> None:
    # Of 2 positives and 3 negatives 5 of the 6 pairs are in order; precision at the positives is 1 and 2/3.
    labels, shares = np.array([1, 0, 1, 0, 0]), np.array([0.9, 0.8, 0.7, 0.2, 0.1])
    both = np.stack((1 - shares, shares), axis=1)
    assert RANKED["auc"](both, labels) == pytest.approx(5 / 6) and RANKED["average_precision"](
        both, labels
    ) == pytest.approx((1 + 2 / 3) / 2)
    # Several labels: the first is ranked perfectly, the second wrongly, and no row has the third.
    several = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])
    assert RANKED["auc"](several, np.array([[1, 1, 0], [0, 0, 0]])) == 0.5
    # Three classes, each against the rest: every row's own class is the likeliest of its column.
    assert RANKED["auc"](np.eye(3), np.arange(3)) == 1.0
    assert RANKED["auc"](both, np.ones(5)) == 0.0, "one class alone ranks nothing"
    assert RANKED["auc"](np.full((5, 2), np.nan), labels) == 0.0


def test_one_answer_to_everything_ranks_nothing() -> None:
    train, labels = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 0, 0])
    assert majority(selected_by(TWO, "auc"), train, labels) == {
        "auc": 0.5,
        "accuracy": 0.8,
        "macro_f1": pytest.approx(4 / 9),
    }
    assert majority(selected_by(TWO, "average_precision"), train, labels)["average_precision"] == pytest.approx(0.2)
    several = Task(name="tags", kind="multilabel", labels=("a", "b"), metrics=("auc",))
    assert majority(several, np.array([[1, 0], [0, 1]]), np.array([[1, 0], [0, 1]])) == {"auc": 0.5}


def test_a_split_is_scored_by_its_probabilities(tiny_vocabulary: Vocabulary) -> None:
    rows = [
        {"id": str(place), "first": "kar mist", "second": None, "label": "spam" if place < 2 else "ham"}
        for place in range(5)
    ]
    task = selected_by(TWO, "auc")
    prepared = sequences.prepare(
        task,
        TEXTS.empty_table().from_pylist(rows, schema=TEXTS),
        tiny_vocabulary,
        Truncation(maximum_length=16, stride=4),
    )
    logits = np.array(
        [[0.0, -1.0], [0.0, -3.0], [0.0, -2.0], [0.0, -4.0], [0.0, -5.0]]
    )  # all ham, with the spam's ranks 1 and 3
    found = sequences.score(task, prepared, logits, {})
    assert list(found) == ["auc", "accuracy", "macro_f1"]
    assert found["auc"] == pytest.approx(5 / 6) and found["accuracy"] == 0.6
    assert score(TWO, logits.argmax(1), np.array([1, 1, 0, 0, 0])) == {name: found[name] for name in TWO.metrics}


def test_accuracy_on_skewed_classes_is_warned_of() -> None:
    labels = ["ham"] * 99 + ["spam"]
    assert skewed(TWO, labels) == (
        "warning: spam: 99.0% of the training rows have the label 'ham', and a model that gives this label to "
        "every row has the same accuracy: select by another metric with --recipe.metric macro_f1 | matthews | auc"
    )
    assert skewed(TWO, ["ham"] * 89 + ["spam"] * 11) is None
    assert skewed(selected_by(TWO, "auc"), labels) is None
