"""Fit of a teacher to a task: which of its outputs are learnt, in which order, and how a score is made of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.errors import ConfigError, listed
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.known import TASKS
from pipeline.tasks.labels import with_number_labels
from pipeline.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Teaching:
    """The functions by which a fine-tuned model teaches the tasks of a kind."""

    order: Callable[[str, str, Task, Task], tuple[int, ...]]
    """Function of (name of the teacher in messages, name of the task, task, teacher's task) that returns the index of
    the teacher's output for each output to learn. Raises ConfigError if the teacher does not fit.
    """
    outputs: Callable[[np.ndarray], np.ndarray]
    """Turn a teacher's logits in that order, (texts, outputs), into those that the task's models learn."""
    has_term: bool = True
    """Whether the teacher has a loss term of its own, with recipe.temperature and recipe.teacher_weight."""


def _order_of_labels(of_teacher: str, name: str, task: Task, teacher: Task) -> tuple[int, ...]:
    """Return the index of the teacher's output for each label of the task.

    Raises ConfigError if kind, labels or task of the two differ, or if the teacher needs pairs of texts and the task
    has single texts.
    """
    if teacher.kind != task.kind:
        raise ConfigError(
            f"{of_teacher} is of kind {teacher.kind}, but {name} is of kind {task.kind}: give a model of that kind"
        )
    teacher = with_number_labels(teacher, set(task.labels))
    if set(teacher.labels) != set(task.labels):
        raise ConfigError(
            f"{of_teacher} has the labels {listed(teacher.labels)}, but {name} has {listed(task.labels)}: give a model "
            "with the same labels"
        )
    if name != teacher.name and {name, teacher.name} <= TASKS.keys():
        raise ConfigError(
            f"{of_teacher} was fine-tuned on {teacher.name}, and the task is {name}: give a model of {name}"
        )
    if teacher.paired and not task.paired:
        raise ConfigError(
            f"{of_teacher} was fine-tuned on pairs of texts, but {name} has single texts: give a model of single texts"
        )
    return tuple(map(teacher.labels.index, task.labels)) or (0,)


def _order_of_scores(of_teacher: str, name: str, task: Task, teacher: Task) -> tuple[int, ...]:
    """Return the teacher's outputs for a ranking: its number, or its two classes, the second one for relevant.

    Raises ConfigError if the teacher has neither.
    """
    handlers = KINDS[teacher.kind]
    if not handlers.numbers and not (handlers.stratified and len(teacher.labels) == 2):
        raise ConfigError(
            f"{of_teacher} is of kind {teacher.kind} and does not score pairs: give a model of kind ranking or "
            "regression, or of kind classification with 2 labels"
        )
    return tuple(range(max(1, len(teacher.labels))))


def _score(logits: np.ndarray) -> np.ndarray:
    """Return the score of each text, (texts, 1); of two classes, the logit of the second one's probability."""
    return logits[:, -1:] - logits[:, :-1].sum(axis=1, keepdims=True)


OF_LABELS = Teaching(order=_order_of_labels, outputs=lambda logits: logits)
"""Teacher of the same task."""
OF_SCORES = Teaching(order=_order_of_scores, outputs=_score, has_term=False)
"""Teacher whose scores of a query's candidates are compared."""
