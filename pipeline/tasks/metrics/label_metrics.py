"""Metrics of predictions against labels: class numbers or values (N,), or for multilabel tasks 0 and 1 (N, L).

An undefined metric is 0, without a warning.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from pipeline.config.task_kind import VALUE_METRICS
from pipeline.tasks.task import Task


def _metrics() -> ModuleType:
    """Return scikit-learn's metrics; imported here because the import takes a second, and answers need none."""
    from sklearn import metrics

    return metrics


def _stats() -> ModuleType:
    """Return scipy's statistics; imported here as `_metrics`."""
    from scipy import stats

    return stats


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows with the correct class."""
    return float(_metrics().accuracy_score(labels, predictions))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the F1 of class 1, the positive class of GLUE's tasks."""
    return float(_metrics().f1_score(labels, predictions, labels=[1], average="macro", zero_division=0.0))


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean F1 over the classes in predictions or labels. For a multilabel task, these are all labels."""
    if labels.ndim == 2:
        return float(
            _metrics().f1_score(
                _indicators(labels),
                _indicators(predictions),
                labels=range(labels.shape[1]),
                average="macro",
                zero_division=0.0,
            )
        )
    return float(_metrics().f1_score(labels, predictions, average="macro", zero_division=0.0))


def micro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the F1 over all labels of all rows together."""
    return float(_metrics().f1_score(_indicators(labels), _indicators(predictions), average="micro", zero_division=0.0))


def subset_accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows whose predicted labels are all correct."""
    return float(_metrics().accuracy_score(_indicators(labels), _indicators(predictions)))


def _indicators(matrix: np.ndarray) -> np.ndarray:
    """Pad a 0/1 matrix with an empty last column, so that scikit-learn reads it as multilabel even with one label."""
    return np.pad(matrix.astype(np.int64), ((0, 0), (0, 1)))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Matthews' correlation of classes; 0 if predictions or labels are constant."""
    return (
        0.0 if _constant(predictions) or _constant(labels) else float(_metrics().matthews_corrcoef(labels, predictions))
    )


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return Pearson's correlation; 0 if predictions or labels are constant or not all finite."""
    return _correlation(_stats().pearsonr, predictions, labels)


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the correlation of ranks; 0 if predictions or labels are constant or not all finite."""
    return _correlation(_stats().spearmanr, predictions, labels)


def mean_absolute_error(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean absolute error in the labels' unit; NaN if a prediction is NaN."""
    return float(np.mean(np.abs(predictions.astype(np.float64) - labels)))


def auc(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the area under the ROC curve; see `_class_by_class` for more than two classes."""
    return _class_by_class(_metrics().roc_auc_score, probabilities, labels)


def average_precision(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the area under the precision-recall curve, as a sum of steps; see `_class_by_class` for more classes."""
    return _class_by_class(_metrics().average_precision_score, probabilities, labels)


def _class_by_class(measure: Callable[..., Any], probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return a score of `probabilities`, float (N, classes).

    If there are two classes, the second is scored. For more classes, or for the labels of a multilabel task, each class
    is scored against the rest, and the mean over classes is returned. Classes that no row has, or that every row has,
    are left out.
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


def triplet_accuracy(near: np.ndarray, far: np.ndarray) -> float:
    """Return how often the similarity of a positive text (N,) is above that of a negative text (N,); ties count 0.5."""
    return float(np.where(near == far, 0.5, near > far).mean())


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
"""Metrics that take probabilities, float (N, classes), instead of predictions."""


def _constant(values: np.ndarray) -> bool:
    """Return whether all values are equal."""
    return bool((values == values[0]).all())


def _correlation(measure: Callable[..., Any], predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return a scipy correlation, or 0 if it is undefined."""
    both = np.stack((predictions, labels)).astype(np.float64)
    # Values whose spread is lost in rounding count as constant, since scipy would warn about them.
    if not np.isfinite(both).all() or any(_constant(values) or _nearly_constant(values) for values in both):
        return 0.0
    return float(measure(both[0], both[1]).statistic)


def _nearly_constant(values: np.ndarray) -> bool:
    """Return whether the spread of finite values is lost in float64 rounding."""
    return bool(np.linalg.norm(values - values.mean()) < 1e-13 * abs(values.mean()))


def score(
    task: Task,
    predictions: np.ndarray,
    labels: np.ndarray,
    probabilities: np.ndarray | None = None,
) -> dict[str, float]:
    """Return the task's metrics by name. NaN predictions have correlation 0.

    `probabilities`, float (N, classes), may be None if the task has no metric of RANKED.
    """
    return {name: _metric(name, predictions, labels, probabilities) for name in task.metrics}


def _metric(name: str, predictions: np.ndarray, labels: np.ndarray, probabilities: Any) -> float:
    """Return one metric of `score`."""
    return RANKED[name](probabilities, labels) if name in RANKED else METRICS[name](predictions, labels)


def majority(task: Task, train_labels: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the task's metrics for a constant answer, chosen from the training split's labels.

    Classification: the most frequent class. Multilabel: the labels that more than half of the rows have. Numbers: their
    mean.
    """
    if task.kind == "multilabel":
        shares = np.tile(train_labels.mean(axis=0), (len(labels), 1))
        return score(task, shares > 0.5, labels, shares)
    if task.kind in VALUE_METRICS:
        return score(task, np.full(len(labels), train_labels.mean()), labels)
    counts = np.bincount(train_labels.astype(np.int64), minlength=len(task.labels))
    shares = np.tile(counts / counts.sum(), (len(labels), 1))
    return score(task, np.full(len(labels), counts.argmax()), labels, shares)


def confusion(task: Task, predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the confusion matrix, true classes by predicted classes, int64 (classes, classes)."""
    classes = len(task.labels)
    cells = labels.astype(np.int64) * classes + predictions.astype(np.int64)
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


def per_class(task: Task, predictions: np.ndarray, labels: np.ndarray) -> dict[str, dict[str, float]]:
    """Return {label: {precision, recall, f1, count}}, where count is the number of rows with the label.

    Undefined scores are 0.
    """
    if task.kind == "multilabel":
        predictions, labels = _indicators(predictions), _indicators(labels)
    figures = _metrics().precision_recall_fscore_support(
        labels, predictions, labels=range(len(task.labels)), zero_division=0.0
    )
    return {
        label: dict(zip(("precision", "recall", "f1", "count"), map(float, row)))
        for label, row in zip(task.labels, zip(*figures))
    }


def tuned_thresholds(probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return for each label the threshold with the best F1 on these rows, float64 (L,).

    `probabilities` and `truth` (N, L) are those of a multilabel task's development set. If several thresholds have the
    best F1, the threshold nearest to 0.5 is returned. A label that no row has gets 0.5.
    """
    return np.array([_tuned_threshold(*column) for column in zip(probabilities.T.astype(np.float64), truth.T > 0)])


def _tuned_threshold(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Return the best threshold of one label; both arguments are (N,).

    The candidates are 0.5, half of the lowest probability, and the midpoints between adjacent probabilities.
    """
    if not truth.any():
        return 0.5
    order = np.argsort(probabilities)
    ranked = probabilities[order]
    before = np.append(0, np.cumsum(truth[order]))  # number of lower-ranked rows with the label
    distinct = np.append(0.0, np.unique(probabilities))
    thresholds = np.append(0.5, (distinct[1:] + distinct[:-1]) / 2)
    below = np.searchsorted(ranked, thresholds)  # number of rows below each threshold
    scores = 2 * (before[-1] - before[below]) / (len(ranked) - below + before[-1])
    return float(thresholds[np.lexsort((thresholds, np.abs(thresholds - 0.5), -scores))[0]])
