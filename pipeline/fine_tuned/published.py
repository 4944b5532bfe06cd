"""The published format of each kind of task: names in config.json, and what its models read and answer.

Published names are those of transformers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.config.cutting import Truncation
from pipeline.config.task_kind import Kind
from pipeline.fine_tuned.answer_forms import (
    CHOICE_ANSWERS,
    COSINE_ANSWERS,
    LABEL_ANSWERS,
    NUMBER_ANSWERS,
    SEVERAL_LABEL_ANSWERS,
    SPAN_ANSWERS,
    TAG_ANSWERS,
    AnswerForm,
)
from pipeline.tasks.intents import INTENT_PREFIX
from pipeline.tasks.prepared import outputs_of
from pipeline.tasks.tagging import CONTINUED
from pipeline.tasks.task import Task

QUESTION_LENGTH = 384
"""Maximum tokens of a question with its context, as in transformers' scripts; other tasks use all positions."""


def _own_labels(task: Task, cutting: Truncation) -> tuple[str, ...]:
    """Return the task's labels."""
    return task.labels


def _number_labels(task: Task, cutting: Truncation) -> tuple[str, ...]:
    """Return the label of the one output of a model that predicts a number."""
    return task.labels or ("score",)


def _tag_labels(task: Task, cutting: Truncation) -> tuple[str, ...]:
    """Return the tags, then the tag of later pieces if they have their own, then the intents."""
    own = outputs_of(task, cutting) > len(task.labels) + len(task.intents)
    return (*task.labels, *([CONTINUED] * own), *(f"{INTENT_PREFIX}{intent}" for intent in task.intents))


@dataclass(frozen=True, kw_only=True)
class PublishedForm:
    """The published format of one kind of task."""

    use: str
    """Key of Family.architectures: the class of the model."""
    head: str = ""
    """Our module whose weight computes the outputs; empty for an encoder without a head."""
    metrics: tuple[str, ...] = ()
    """Metrics that score models that others published; empty: only models of this package have this kind."""
    problem_type: str | None = None
    """problem_type in config.json."""
    outputs: int | None = None
    """Number of outputs; None: one per label."""
    most_tokens: int | None = None
    """Most tokens of a row for models that others published; None: all positions."""
    labels: Callable[[Task, Truncation], tuple[str, ...]] = _own_labels
    """Names of the outputs in config.json."""
    pools: bool = False
    """Whether the head reads one pooled state of a whole text."""
    answers: AnswerForm
    """Inputs and answers of the models."""


_SEQUENCES = PublishedForm(use="classification", head="classification_head", pools=True, answers=LABEL_ANSWERS)
_NUMBERS = replace(
    _SEQUENCES, use="regression", problem_type="regression", outputs=1, labels=_number_labels, answers=NUMBER_ANSWERS
)
_VECTORS = PublishedForm(use="similarity", answers=COSINE_ANSWERS)
PUBLISHED: dict[Kind, PublishedForm] = {
    "classification": replace(_SEQUENCES, problem_type="single_label_classification", metrics=("accuracy", "macro_f1")),
    "multilabel": replace(
        _SEQUENCES,
        use="multilabel",
        problem_type="multi_label_classification",
        metrics=("micro_f1", "macro_f1", "subset_accuracy"),
        answers=SEVERAL_LABEL_ANSWERS,
    ),
    "regression": replace(_NUMBERS, metrics=("pearson", "spearman", "mean_absolute_error")),
    "ranking": _NUMBERS,
    "similarity": _VECTORS,
    "matching": _VECTORS,
    "relations": _VECTORS,
    "tags": PublishedForm(
        use="tags",
        head="tag_head",
        metrics=("f1", "precision", "recall", "accuracy"),
        labels=_tag_labels,
        answers=TAG_ANSWERS,
    ),
    "spans": PublishedForm(
        use="spans",
        head="answer_head",
        metrics=("f1", "exact"),
        outputs=2,
        most_tokens=QUESTION_LENGTH,
        answers=SPAN_ANSWERS,
    ),
    "choices": PublishedForm(
        use="choices", head="choice_head", metrics=("accuracy",), outputs=1, answers=CHOICE_ANSWERS
    ),
}
"""Kind of task -> its published format; a kind that is saved as another kind has the other's."""
