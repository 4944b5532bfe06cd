"""The metric that selects settings, epochs and the best model of a task, which may be chosen."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pipeline.errors import ConfigError
from pipeline.tasks.task import Kind, Task, shown

CHOICES: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "f1", "macro_f1", "matthews", "auc", "average_precision"),
    "multilabel": ("micro_f1", "macro_f1", "subset_accuracy", "auc", "average_precision"),
    "regression": ("pearson", "spearman", "mean_absolute_error"),
}
"""Kind -> metrics that may select beside the task's own."""
OF_TWO_CLASSES = ("f1",)
"""Metrics of the second class of two."""
OTHER_NAMES = {"mcc": "matthews", "roc_auc": "auc", "mae": "mean_absolute_error"}
LOWER_IS_BETTER = ("mean_absolute_error",)
SKEWED = 0.9
"""Share of the commonest class from which on accuracy says little."""


def choices(task: Task) -> tuple[str, ...]:
    """The metrics by which a task's settings can be selected, its own first."""
    beside = [name for name in CHOICES.get(task.kind, ()) if name not in OF_TWO_CLASSES or len(task.labels) == 2]
    return tuple(dict.fromkeys((*task.metrics, *beside)))


def selected_by(task: Task, metric: str | None) -> Task:
    """The task with the metric that recipe.metric names as its first. Raises ConfigError for one that cannot be."""
    if metric is None:
        return task
    name = metric.replace("-", "_").lower()
    name = OTHER_NAMES.get(name, name)
    if name not in choices(task):
        raise ConfigError(
            f"recipe.metric ({metric}) is no metric of {task.name} ({task.kind}): "
            f"choose one of {', '.join(choices(task))}"
        )
    return replace(task, metrics=tuple(dict.fromkeys((name, *task.metrics))))


def comparable_score(metric: str, value: float) -> float:
    """A score as a number that is higher where the model is better; of NaN the lowest."""
    if math.isnan(value):
        return -math.inf
    return -value if metric in LOWER_IS_BETTER else value


def skewed(task: Task, labels: Sequence[str]) -> str | None:
    """A line where accuracy selects and nearly all training labels are the same; else None."""
    if task.kind != "classification" or task.metrics[0] != "accuracy":
        return None
    label, count = Counter(labels).most_common(1)[0]
    if count < SKEWED * len(labels):
        return None
    others = [name for name in ("macro_f1", "matthews", "auc") if name in choices(task)]
    return (
        f"warning: {task.name}: {100 * count / len(labels):.1f}% of the training rows have the label {shown(label)}, "
        "and answering it always has that accuracy: "
        f"select by another metric with --recipe.metric {' | '.join(others)}"
    )
