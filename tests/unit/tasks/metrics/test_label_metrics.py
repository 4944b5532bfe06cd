"""Metrics by hand: counts small enough to work out on paper."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.tasks.glue import TASKS
from pipeline.tasks.metrics.label_metrics import METRICS, confusion, majority, per_class, score, tuned_thresholds
from pipeline.tasks.task import Task

THREE = Task(name="three", kind="classification", labels=("a", "b", "c"), metrics=("accuracy", "macro_f1"))
# 3 true positives, 1 false positive, 2 false negatives, 4 true negatives
LABELS = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0])
PREDICTIONS = np.array([1, 1, 1, 0, 0, 1, 0, 0, 0, 0])


def test_two_classes():
    found = {name: METRICS[name](PREDICTIONS, LABELS) for name in ("accuracy", "f1", "macro_f1", "matthews")}
    f1 = {1: 2 * 3 / (2 * 3 + 1 + 2), 0: 2 * 4 / (2 * 4 + 2 + 1)}
    assert found == pytest.approx(
        {
            "accuracy": 0.7,
            "f1": f1[1],
            "macro_f1": (f1[0] + f1[1]) / 2,
            "matthews": (3 * 4 - 1 * 2) / (4 * 5 * 5 * 6) ** 0.5,
        }
    )


def test_values():
    labels, predictions = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 10.0])
    found = {name: METRICS[name](predictions, labels) for name in ("pearson", "spearman", "mean_absolute_error")}
    # deviations of labels -1.5 -0.5 0.5 1.5, of predictions -3 -1 -2 6; ranks 1 3 2 4: 1 - 6 * 2 / (4 * 15)
    assert found == pytest.approx({"pearson": 13 / (5 * 50) ** 0.5, "spearman": 0.8, "mean_absolute_error": 2.0})


def test_scores_are_the_task_s_metrics():
    assert score(TASKS["mrpc"], PREDICTIONS, LABELS) == pytest.approx({"accuracy": 0.7, "f1": 2 / 3})
    assert list(score(TASKS["stsb"], LABELS * 1.0, LABELS * 1.0)) == ["pearson", "spearman"]


def test_one_answer_to_everything_is_the_training_split_s():
    train = np.array([1, 1, 0], np.float32)
    assert majority(TASKS["mrpc"], train, LABELS) == pytest.approx({"accuracy": 0.5, "f1": 2 / 3})
    assert majority(TASKS["cola"], train, LABELS) == {"matthews": 0.0}
    values = Task(name="v", kind="regression", metrics=("mean_absolute_error", "pearson"))
    assert majority(values, np.array([1.0, 2.0, 6.0]), np.array([3.0, 5.0])) == {
        "mean_absolute_error": 1.0,
        "pearson": 0.0,
    }


def test_what_is_not_defined_is_zero_without_a_word(capfd: pytest.CaptureFixture[str]):
    same, two, nan = np.ones(4), np.array([0.0, 1, 0, 1]), np.array([0.0, 1, np.nan, 1])
    close = np.float32(3.1) + np.array([0, 0, 0, 4e-16])
    cases = [(same, two), (two, same), (same, same), (same[:1], two[:1]), (close, two)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert [METRICS[name](*case) for name in ("pearson", "spearman") for case in [*cases, (nan, two)]] == [0.0] * 12
        assert [METRICS["matthews"](*case) for case in cases[:4]] == [0.0] * 4
        of_classes = [METRICS[name](np.zeros(4), same * 0) for name in ("f1", "macro_f1", "accuracy", "matthews")]
        assert of_classes == [0.0, 1.0, 1.0, 0.0] and METRICS["f1"](np.zeros(4), same) == 0.0
    assert said == [] and capfd.readouterr() == ("", "")


def test_confusion_has_a_row_for_each_true_class():
    labels, predictions = np.array([0.0, 0.0, 0.0, 1.0, 1.0]), np.array([0, 0, 1, 1, 0])
    assert confusion(THREE, predictions, labels).tolist() == [[2, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert per_class(THREE, predictions, labels) == {
        "a": pytest.approx({"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "count": 3}),
        "b": pytest.approx({"precision": 1 / 2, "recall": 1 / 2, "f1": 1 / 2, "count": 2}),
        "c": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "count": 0},
    }
    assert score(THREE, predictions, labels)["macro_f1"] == pytest.approx((2 / 3 + 1 / 2) / 2)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30))
def test_confusion_holds_the_other_figures(pairs: list[tuple[int, int]]):
    predictions, labels = np.array(pairs).T
    table = confusion(THREE, predictions, labels)
    assert table.sum() == len(pairs) and np.trace(table) / len(pairs) == pytest.approx(
        score(THREE, predictions, labels)["accuracy"]
    )
    for place, row in enumerate(per_class(THREE, predictions, labels).values()):
        assert row["recall"] == pytest.approx(table[place, place] / max(1, table[place].sum()))
        assert row["precision"] == pytest.approx(table[place, place] / max(1, table[:, place].sum()))


TOPICS = Task(
    name="topics", kind="multilabel", labels=("a", "b", "c"), metrics=("micro_f1", "macro_f1", "subset_accuracy")
)


def test_several_labels_by_hand():
    labels = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]], np.float32)
    predictions = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0]], np.float32)
    # a: 2 right, 1 too many; b: 1 right, 1 missed; c: nothing
    assert score(TOPICS, predictions, labels) == pytest.approx(
        {"micro_f1": 6 / 8, "macro_f1": (4 / 5 + 2 / 3 + 0) / 3, "subset_accuracy": 0.5}
    )
    assert per_class(TOPICS, predictions, labels) == {
        "a": pytest.approx({"precision": 2 / 3, "recall": 1.0, "f1": 4 / 5, "count": 2}),
        "b": pytest.approx({"precision": 1.0, "recall": 1 / 2, "f1": 2 / 3, "count": 2}),
        "c": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "count": 0},
    }
    assert majority(TOPICS, np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]]), labels) == pytest.approx(
        {"micro_f1": 4 / 8, "macro_f1": 2 * 2 / 6 / 3, "subset_accuracy": 0.25}
    )


def test_one_label_is_scored_as_a_label_and_not_as_two_classes():
    labels, predictions = np.array([[1], [0], [0]]), np.array([[1], [1], [0]])
    assert score(TOPICS, predictions, labels) == pytest.approx(
        {"micro_f1": 2 / 3, "macro_f1": 2 / 3, "subset_accuracy": 2 / 3}
    )


def test_thresholds_by_hand():
    probabilities = np.array([[0.9, 0.1, 0.6, 0.4], [0.8, 0.3, 0.7, 0.6], [0.2, 0.2, 0.8, 0.1]], np.float32)
    truth = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 1]])
    # above the 0.8 that is wrong; below the 0.3 that is right; no row has it; all rows: half-way to nothing
    assert tuned_thresholds(probabilities, truth) == pytest.approx([0.85, 0.25, 0.5, 0.05])
    assert tuned_thresholds(np.array([[0.3], [0.7]]), np.array([[0], [1]])).tolist() == [0.5]


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0]), st.booleans()), min_size=1, max_size=12))
def test_no_threshold_is_better_and_none_as_good_nearer_to_half(rows: list[tuple[float, bool]]):
    probabilities, truth = np.array([p for p, _ in rows]), np.array([t for _, t in rows])
    (found,) = tuned_thresholds(probabilities[:, None], truth[:, None])
    best, grid = METRICS["f1"](probabilities >= found, truth), np.arange(21) / 20
    for threshold in grid:
        assert METRICS["f1"](probabilities >= threshold, truth) <= best
    assert METRICS["f1"](probabilities >= 0.5, truth) < best or found == 0.5
