"""The kinds of task, each with its way from items to rows, and from logits to scores."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from pipeline.config.finetune import Cutting
from pipeline.tasks import questions, sequences, tags
from pipeline.tasks.prepared import Logits, Prepared, Tuned
from pipeline.tasks.task import Kind, Task
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class TaskHandlers:
    """What a kind of task does."""

    prepare: Callable[[Task, Any, Vocabulary, Cutting], Prepared]
    """Items as rows of ids."""
    answers: Callable[[Task, Prepared, Logits, Cutting], Any]
    """What a model's logits say of each item; the functions below take it."""
    score: Callable[[Task, Prepared, Any, Tuned], dict[str, float]]
    """Metrics of a split, as shares of 1 but for mean_absolute_error."""
    tune: Callable[[Task, Prepared, Any], Tuned]
    """What is chosen on the development set beside the weights."""
    baseline: Callable[[Task, Prepared, Prepared], dict[str, float]]
    """Metrics of an answer that needs no model; the first split is the training one."""
    collapsed: Callable[[Task, Prepared, Any], bool]
    """Whether a model gives the same answer to everything."""
    details: Callable[[Task, Prepared, Any, Tuned], dict[str, Any]]
    """What more there is to say of a split than its metrics, as JSON writes it."""


def handlers_in(module: Any) -> TaskHandlers:
    """The functions of a module by their names."""
    return TaskHandlers(**{one.name: getattr(module, one.name) for one in fields(TaskHandlers)})


KINDS: dict[Kind, TaskHandlers] = {
    "classification": handlers_in(sequences),
    "regression": handlers_in(sequences),
    "multilabel": handlers_in(sequences),
    "tags": handlers_in(tags),
    "spans": handlers_in(questions),
}
