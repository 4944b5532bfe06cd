"""Choose the metric that selects settings, epochs and the best model of a task."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pipeline.config.task_kind import Kind
from pipeline.errors import ConfigError
from pipeline.tasks.task import Task, shown

CHOICES: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "f1", "macro_f1", "matthews", "auc", "average_precision"),
    "multilabel": ("micro_f1", "macro_f1", "subset_accuracy", "auc", "average_precision"),
    "similarity": ("spearman", "pearson"),
    "regression": ("pearson", "spearman", "mean_absolute_error"),
}
"""Kind of task -> metrics that may select, in addition to the task's own."""
OF_TWO_CLASSES = ("f1",)
"""Metrics that exist only for two classes."""
OTHER_NAMES = {"mcc": "matthews", "roc_auc": "auc", "mae": "mean_absolute_error"}
LOWER_IS_BETTER = ("mean_absolute_error",)
SKEWED = 0.9
"""If the most frequent class has at least this share of the rows, a warning advises against accuracy."""


def choices(task: Task) -> tuple[str, ...]:
    """Return the metrics that can select a task's settings, the task's own first."""
    further = [name for name in CHOICES.get(task.kind, ()) if name not in OF_TWO_CLASSES or len(task.labels) == 2]
    return tuple(dict.fromkeys((*task.metrics, *further)))


def selected_by(task: Task, metric: str | None) -> Task:
    """Return the task with `metric` as its first metric, which selects; if `metric` is None, the task is unchanged.

    `metric` is the setting recipe.metric. Raises ConfigError if this metric does not fit the task.
    """
    if metric is None:
        return task
    name = metric.replace("-", "_").lower()
    name = OTHER_NAMES.get(name, name)
    if name not in choices(task):
        raise ConfigError(
            f"recipe.metric ({metric}) is not a metric of {task.name} ({task.kind}): "
            f"choose one of {', '.join(choices(task))}"
        )
    return replace(task, metrics=tuple(dict.fromkeys((name, *task.metrics))))


def comparable_score(metric: str, value: float) -> float:
    """Return a score as a number that is higher for better models; NaN is the lowest."""
    if math.isnan(value):
        return -math.inf
    return -value if metric in LOWER_IS_BETTER else value


def skewed(task: Task, labels: Sequence[str]) -> str | None:
    """Return a warning if accuracy selects and nearly all training labels are the same; else None."""
    if task.kind != "classification" or task.metrics[0] != "accuracy":
        return None
    label, count = Counter(labels).most_common(1)[0]
    if count < SKEWED * len(labels):
        return None
    others = [name for name in ("macro_f1", "matthews", "auc") if name in choices(task)]
    return (
        f"warning: {task.name}: {100 * count / len(labels):.1f}% of the training rows have the label {shown(label)}, "
        "and a model that gives this label to every row has the same accuracy: "
        f"select by another metric with --recipe.metric {' | '.join(others)}"
    )
