"""Kinds of task, each with the functions that turn items into rows, and logits into scores."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from pipeline.config.cutting import Truncation
from pipeline.tasks import choices, matching, questions, ranking, relations, sequences, similarity, tags
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.task import Kind, Task
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class TaskHandlers:
    """The functions that implement a kind of task."""

    prepare: Callable[[Task, Any, Vocabulary, Truncation], Prepared]
    """Encode items as rows of ids."""
    answers: Callable[[Task, Prepared, Logits, Truncation], Any]
    """Turn a model's logits into one answer per item, as `score`, `tune`, `collapsed` and `details` take them."""
    score: Callable[[Task, Prepared, Any, Thresholds], dict[str, float]]
    """Return the metrics of a split, as shares of 1 except mean_absolute_error."""
    tune: Callable[[Task, Prepared, Any], Thresholds]
    """Choose values other than weights, such as thresholds, on the development set."""
    baseline: Callable[[Task, Prepared, Prepared], dict[str, float]]
    """Return the metrics of a model-free baseline; of the two splits, the first is the training split."""
    collapsed: Callable[[Task, Prepared, Any], bool]
    """Return whether a model gives the same answer for all items."""
    details: Callable[[Task, Prepared, Any, Thresholds], dict[str, Any]]
    """Return further results of a split, such as per-class scores, as JSON."""


def _handlers_in(module: Any) -> TaskHandlers:
    """Return a module's functions that are named as the fields of TaskHandlers."""
    return TaskHandlers(**{field.name: getattr(module, field.name) for field in fields(TaskHandlers)})


KINDS: dict[Kind, TaskHandlers] = {
    "classification": _handlers_in(sequences),
    "regression": _handlers_in(sequences),
    "multilabel": _handlers_in(sequences),
    "ranking": _handlers_in(ranking),
    "similarity": _handlers_in(similarity),
    "matching": _handlers_in(matching),
    "relations": _handlers_in(relations),
    "tags": _handlers_in(tags),
    "spans": _handlers_in(questions),
    "choices": _handlers_in(choices),
}
