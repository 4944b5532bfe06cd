"""How predictions are scored: class numbers or values, (N,), or the 0 and 1 of a multilabel task, (N, L), against those of the labels.

What a metric cannot tell is 0, without a word.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from sklearn import metrics

from pipeline.tasks.task import Task


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    return float(metrics.accuracy_score(labels, predictions))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Of the second class, which is the positive one of GLUE's tasks."""
    return float(metrics.f1_score(labels, predictions, labels=[1], average="macro", zero_division=0.0))


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Mean over the classes that are predicted or labels; of a multilabel task over all of its labels."""
    if labels.ndim == 2:
        return float(
            metrics.f1_score(
                indicators(labels),
                indicators(predictions),
                labels=range(labels.shape[1]),
                average="macro",
                zero_division=0.0,
            )
        )
    return float(metrics.f1_score(labels, predictions, average="macro", zero_division=0.0))


def micro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Of all labels of all rows together."""
    return float(metrics.f1_score(indicators(labels), indicators(predictions), average="micro", zero_division=0.0))


def subset_accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """The share of rows whose labels are all right."""
    return float(metrics.accuracy_score(indicators(labels), indicators(predictions)))


def indicators(matrix: np.ndarray) -> np.ndarray:
    """0 and 1 as scikit-learn takes them for labels even where there is one: with a last column that nothing has."""
    return np.pad(matrix.astype(np.int64), ((0, 0), (0, 1)))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Matthews' correlation of classes; 0 where predictions or labels are all the same."""
    return 0.0 if constant(predictions) or constant(labels) else float(metrics.matthews_corrcoef(labels, predictions))


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Correlation of values; 0 where either are all the same or not all finite."""
    return correlation(stats.pearsonr, predictions, labels)


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Correlation of ranks; 0 where either are all the same or not all finite."""
    return correlation(stats.spearmanr, predictions, labels)


def mean_absolute_error(predictions: np.ndarray, labels: np.ndarray) -> float:
    """In the unit of the labels; NaN where a prediction is."""
    return float(np.mean(np.abs(predictions.astype(np.float64) - labels)))


def auc(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Area under the ROC curve; see `class_by_class`."""
    return class_by_class(metrics.roc_auc_score, probabilities, labels)


def average_precision(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Area under the curve of precision over recall, as a sum of steps; see `class_by_class`."""
    return class_by_class(metrics.average_precision_score, probabilities, labels)


def class_by_class(measure: Callable[..., Any], probabilities: np.ndarray, labels: np.ndarray) -> float:
    """A measure of the second of two classes; of more classes, or of labels, a mean.

    It is over those that some rows have and others have not.
    """
    if not np.isfinite(probabilities).all():
        return 0.0
    truths = labels > 0 if labels.ndim == 2 else labels[:, None] == np.arange(probabilities.shape[1])
    columns = [1] if labels.ndim == 1 and probabilities.shape[1] == 2 else range(probabilities.shape[1])
    found = [
        float(measure(truths[:, column], probabilities[:, column]))
        for column in columns
        if 0 < truths[:, column].sum() < len(labels)
    ]
    return float(np.mean(found)) if found else 0.0


Measure = Callable[[np.ndarray, np.ndarray], float]
METRICS: dict[str, Measure] = {
    measure.__name__: measure
    for measure in (accuracy, f1, macro_f1, micro_f1, subset_accuracy, matthews, pearson, spearman, mean_absolute_error)
}
RANKED: dict[str, Measure] = {measure.__name__: measure for measure in (auc, average_precision)}
"""Metrics of probabilities, float (N, classes), in the place of answers."""


def constant(values: np.ndarray) -> bool:
    """Whether all values are the same, or there is one."""
    return bool((values == values[0]).all())


def correlation(measure: Callable[..., Any], predictions: np.ndarray, labels: np.ndarray) -> float:
    """A correlation of scipy's, with 0 for what it is not defined on."""
    both = np.stack((predictions, labels)).astype(np.float64)
    # values so close that their spread is lost in rounding are as good as the same, and scipy would warn
    if not np.isfinite(both).all() or any(constant(values) or nearly_constant(values) for values in both):
        return 0.0
    return float(measure(both[0], both[1]).statistic)


def nearly_constant(values: np.ndarray) -> bool:
    """Whether the spread of finite values is lost in the rounding of float64."""
    return bool(np.linalg.norm(values - values.mean()) < 1e-13 * abs(values.mean()))


def score(
    task: Task, predictions: np.ndarray, labels: np.ndarray, probabilities: np.ndarray | None = None
) -> dict[str, float]:
    """The task's metrics by name, those in RANKED of the probabilities; NaN predictions correlate with nothing."""
    return {
        name: RANKED[name](probabilities, labels) if name in RANKED else METRICS[name](predictions, labels)
        for name in task.metrics
    }


def majority(task: Task, train_labels: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The task's metrics of one answer to everything: the most frequent class of the training split, or the mean of its values.

    Of a multilabel task: the labels that more than half of its rows have.
    """
    if task.kind == "multilabel":
        shares = np.tile(train_labels.mean(axis=0), (len(labels), 1))
        return score(task, shares > 0.5, labels, shares)
    if task.kind == "regression":
        return score(task, np.full(len(labels), train_labels.mean()), labels)
    counts = np.bincount(train_labels.astype(np.int64), minlength=len(task.labels))
    return score(task, np.full(len(labels), counts.argmax()), labels, np.tile(counts / counts.sum(), (len(labels), 1)))


def confusion(task: Task, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How often each class (row) was taken for each (column), int64 (classes, classes)."""
    classes = len(task.labels)
    places = labels.astype(np.int64) * classes + predictions.astype(np.int64)
    return np.bincount(places, minlength=classes * classes).reshape(classes, classes)


def per_class(task: Task, predictions: np.ndarray, labels: np.ndarray) -> dict[str, dict[str, float]]:
    """{label: {precision, recall, f1, count}}; count is how many rows have the label, and what is not defined is 0."""
    if task.kind == "multilabel":
        predictions, labels = indicators(predictions), indicators(labels)
    figures = metrics.precision_recall_fscore_support(
        labels, predictions, labels=range(len(task.labels)), zero_division=0.0
    )
    return {
        label: dict(zip(("precision", "recall", "f1", "count"), map(float, row)))
        for label, row in zip(task.labels, zip(*figures))
    }


def tuned_thresholds(probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The threshold (L,) from which on each label of a multilabel task is given, tuned on dev: of the best F1 on these rows, both (N, L).

    Of thresholds that are as good the one nearest to 0.5; 0.5 for a label that no row has.
    """
    return np.array([tuned_threshold(*column) for column in zip(probabilities.T.astype(np.float64), truth.T > 0)])


def tuned_threshold(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Of one label, both (N,): 0.5, or half-way between two probabilities that follow each other."""
    if not truth.any():
        return 0.5
    order = np.argsort(probabilities)
    ranked, before = (
        probabilities[order],
        np.append(0, np.cumsum(truth[order])),
    )  # before: how many of the lower-ranked rows have the label
    distinct = np.append(0.0, np.unique(probabilities))
    thresholds = np.append(0.5, (distinct[1:] + distinct[:-1]) / 2)
    places = np.searchsorted(ranked, thresholds)
    scores = 2 * (before[-1] - before[places]) / (len(ranked) - places + before[-1])
    return float(thresholds[np.lexsort((thresholds, np.abs(thresholds - 0.5), -scores))[0]])
