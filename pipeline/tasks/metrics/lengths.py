"""Metrics of truncated vectors: spearman@64 is the metric spearman of the first 64 numbers of each vector.

Kusupati et al. 2022 (Matryoshka representations) train vectors whose first numbers are vectors too.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pipeline.tasks.task import Task

AT = "@"
"""Between the name of a metric and the length of the truncated vectors."""


def with_lengths(task: Task, lengths: Sequence[int]) -> Task:
    """Return the task with the lengths of truncated vectors, and with its metrics at each of these lengths."""
    metrics = of_whole_vectors(task).metrics
    truncated = (f"{metric}{AT}{length}" for length in lengths for metric in metrics)
    return replace(task, dimensions=tuple(lengths), metrics=(*metrics, *truncated))


def of_whole_vectors(task: Task) -> Task:
    """Return the task without truncated vectors and their metrics."""
    return replace(task, dimensions=(), metrics=tuple(name for name in task.metrics if AT not in name))


def place_of(task: Task, metric: str) -> tuple[str, int]:
    """Return a metric's name without its length, and the place of the length: 0 for whole vectors, then dimensions."""
    name, _, length = metric.partition(AT)
    return name, 1 + task.dimensions.index(int(length)) if length else 0


def scores_at(task: Task, measure: Callable[[str, int], float]) -> dict[str, float]:
    """Return metric -> score; `measure` takes the results of `place_of`."""
    return {metric: measure(*place_of(task, metric)) for metric in task.metrics}
