"""Metrics of predictions against labels: class numbers or values (N,), or the 0 and 1 of a multilabel task (N, L).

An undefined metric is 0, without a warning.
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
    """Return the F1 of the second class, the positive one of GLUE's tasks."""
    return float(metrics.f1_score(labels, predictions, labels=[1], average="macro", zero_division=0.0))


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean F1 over classes that occur in predictions or labels; for a multilabel task over all labels."""
    if labels.ndim == 2:
        return float(
            metrics.f1_score(
                _indicators(labels),
                _indicators(predictions),
                labels=range(labels.shape[1]),
                average="macro",
                zero_division=0.0,
            )
        )
    return float(metrics.f1_score(labels, predictions, average="macro", zero_division=0.0))


def micro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the F1 over all labels of all rows together."""
    return float(metrics.f1_score(_indicators(labels), _indicators(predictions), average="micro", zero_division=0.0))


def subset_accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows whose labels are all right."""
    return float(metrics.accuracy_score(_indicators(labels), _indicators(predictions)))


def _indicators(matrix: np.ndarray) -> np.ndarray:
    """Pad a 0/1 matrix with an empty last column, so that scikit-learn reads it as multilabel even with one label."""
    return np.pad(matrix.astype(np.int64), ((0, 0), (0, 1)))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Matthews' correlation of classes; 0 if predictions or labels are constant."""
    return 0.0 if _constant(predictions) or _constant(labels) else float(metrics.matthews_corrcoef(labels, predictions))


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the correlation of values; 0 if either is constant or not finite."""
    return _correlation(stats.pearsonr, predictions, labels)


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the correlation of ranks; 0 if either is constant or not finite."""
    return _correlation(stats.spearmanr, predictions, labels)


def mean_absolute_error(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean absolute error in the labels' unit; NaN if a prediction is."""
    return float(np.mean(np.abs(predictions.astype(np.float64) - labels)))


def auc(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Area under the ROC curve; see `_class_by_class`."""
    return _class_by_class(metrics.roc_auc_score, probabilities, labels)


def average_precision(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Area under the precision-recall curve, as a sum of steps; see `_class_by_class`."""
    return _class_by_class(metrics.average_precision_score, probabilities, labels)


def _class_by_class(measure: Callable[..., Any], probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Score the second of two classes; for more classes, or for labels, return the mean of one-against-rest scores.

    Classes that no row has, or that every row has, are left out.
    """
    if not np.isfinite(probabilities).all():
        return 0.0
    truths = labels > 0 if labels.ndim == 2 else labels[:, None] == np.arange(probabilities.shape[1])
    columns = [1] if labels.ndim == 1 and probabilities.shape[1] == 2 else range(probabilities.shape[1])
    scores = [
        float(measure(truths[:, column], probabilities[:, column]))
        for column in columns
        if 0 < truths[:, column].sum() < len(labels)
    ]
    return float(np.mean(scores)) if scores else 0.0


Measure = Callable[[np.ndarray, np.ndarray], float]
METRICS: dict[str, Measure] = {
    measure.__name__: measure
    for measure in (
        accuracy,
        f1,
        macro_f1,
        micro_f1,
        subset_accuracy,
        matthews,
        pearson,
        spearman,
        mean_absolute_error,
    )
}
RANKED: dict[str, Measure] = {measure.__name__: measure for measure in (auc, average_precision)}
"""Metrics of probabilities, float (N, classes), instead of predictions."""


def _constant(values: np.ndarray) -> bool:
    """Return whether all values are equal."""
    return bool((values == values[0]).all())


def _correlation(measure: Callable[..., Any], predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return a scipy correlation, or 0 if it is undefined."""
    both = np.stack((predictions, labels)).astype(np.float64)
    # values whose spread is lost in rounding count as constant; scipy would warn about them
    if not np.isfinite(both).all() or any(_constant(values) or _nearly_constant(values) for values in both):
        return 0.0
    return float(measure(both[0], both[1]).statistic)


def _nearly_constant(values: np.ndarray) -> bool:
    """Return whether the spread of finite values is lost in float64 rounding."""
    return bool(np.linalg.norm(values - values.mean()) < 1e-13 * abs(values.mean()))


def score(
    task: Task, predictions: np.ndarray, labels: np.ndarray, probabilities: np.ndarray | None = None
) -> dict[str, float]:
    """Return the task's metrics by name; those in RANKED use the probabilities. NaN predictions have correlation 0."""
    ranked: Any = probabilities
    return {
        name: RANKED[name](ranked, labels) if name in RANKED else METRICS[name](predictions, labels)
        for name in task.metrics
    }


def majority(task: Task, train_labels: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the task's metrics for a constant answer: the most frequent class of the training split, its mean value,
    or (multilabel) the labels of more than half of its rows.
    """
    if task.kind == "multilabel":
        shares = np.tile(train_labels.mean(axis=0), (len(labels), 1))
        return score(task, shares > 0.5, labels, shares)
    if task.kind == "regression":
        return score(task, np.full(len(labels), train_labels.mean()), labels)
    counts = np.bincount(train_labels.astype(np.int64), minlength=len(task.labels))
    return score(task, np.full(len(labels), counts.argmax()), labels, np.tile(counts / counts.sum(), (len(labels), 1)))


def confusion(task: Task, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the confusion matrix, true classes by predicted classes, int64 (classes, classes)."""
    classes = len(task.labels)
    cells = labels.astype(np.int64) * classes + predictions.astype(np.int64)
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


def per_class(task: Task, predictions: np.ndarray, labels: np.ndarray) -> dict[str, dict[str, float]]:
    """Return {label: {precision, recall, f1, count}}; count is the number of rows with the label, and undefined scores
    are 0.
    """
    if task.kind == "multilabel":
        predictions, labels = _indicators(predictions), _indicators(labels)
    figures = metrics.precision_recall_fscore_support(
        labels, predictions, labels=range(len(task.labels)), zero_division=0.0
    )
    return {
        label: dict(zip(("precision", "recall", "f1", "count"), map(float, row)))
        for label, row in zip(task.labels, zip(*figures))
    }


def tuned_thresholds(probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return each label's threshold (L,) with the best F1 on these rows, for multilabel `probabilities` and `truth` (N,
    L); tuned on dev.

    Ties go to the threshold nearest to 0.5; a label that no row has gets 0.5.
    """
    return np.array([_tuned_threshold(*column) for column in zip(probabilities.T.astype(np.float64), truth.T > 0)])


def _tuned_threshold(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Return the best threshold of one label, from (N,): 0.5, or halfway between two adjacent probabilities."""
    if not truth.any():
        return 0.5
    order = np.argsort(probabilities)
    ranked = probabilities[order]
    before = np.append(0, np.cumsum(truth[order]))  # how many of the lower-ranked rows have the label
    distinct = np.append(0.0, np.unique(probabilities))
    thresholds = np.append(0.5, (distinct[1:] + distinct[:-1]) / 2)
    below = np.searchsorted(ranked, thresholds)  # rows below each threshold
    scores = 2 * (before[-1] - before[below]) / (len(ranked) - below + before[-1])
    return float(thresholds[np.lexsort((thresholds, np.abs(thresholds - 0.5), -scores))[0]])
