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
class Way:
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


def way(module: Any) -> Way:
    """The functions of a module by their names."""
    return Way(**{one.name: getattr(module, one.name) for one in fields(Way)})


KINDS: dict[Kind, Way] = {
    "classification": way(sequences),
    "regression": way(sequences),
    "multilabel": way(sequences),
    "tags": way(tags),
    "spans": way(questions),
}
