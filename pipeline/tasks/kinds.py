"""Kinds of task, each with the functions that turn items into rows and logits into scores, and facts about its rows."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal

from pipeline.config.cutting import Truncation
from pipeline.config.task_kind import VALUE_METRICS, Kind
from pipeline.tasks import choices, matching, questions, ranking, relations, sequences, similarity, tags
from pipeline.tasks.metrics.lengths import with_lengths
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.rows import (
    OF_CHOICES,
    OF_QUESTIONS,
    OF_TEXTS,
    OF_WORDS,
    WITH_ANSWERS,
    WITH_CHOSEN,
    WITH_CLASSES,
    WITH_LABELS,
    WITH_SEVERAL_LABELS,
    WITH_TAGS,
    LabelledForm,
    RowForm,
)
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A model-free baseline."""

    words: str = "the commonest label"
    """Words for its answers."""
    learns: Literal["rows", "labels", "words", "nothing"] = "rows"
    """Part of the training split that it reads: the labels of prepared rows, the labels of items that need not be
    encoded, the words of such items too, or nothing.
    """


SHARED_WORDS = Baseline(words="shared words", learns="nothing")


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

    # Facts about the rows of a kind
    label_column: Literal["label", "labels"] = "label"
    """Column of encoded rows that holds the labels."""
    stratified: bool = False
    """Whether each row has one class, so that folds can have equal shares of each class."""
    numbers: bool = False
    """Whether a model gives each row one number."""
    makes_vectors: bool = False
    """Whether the vectors of texts are trained, by the settings `similarity`."""
    saved_as: Kind | None = None
    """Kind of the saved model; None: the kind itself."""

    # How rows are read and answered
    rows: RowForm = OF_TEXTS
    """Form of rows without labels."""
    labelled: LabelledForm = WITH_LABELS
    """Form of labelled rows."""
    most_scored_labels: int | None = None
    """Most labels of a model whose output scores a pair of texts, 0 for a number; None: its outputs score no pairs."""
    baseline_facts: Baseline = Baseline()
    """Answers of `baseline`, and what it learns from."""


def _handlers_in(module: Any, **facts: Any) -> TaskHandlers:
    """Return a module's functions that are named as the fields of TaskHandlers without a default, with these facts."""
    functions = [field.name for field in fields(TaskHandlers) if field.default is MISSING]
    return TaskHandlers(**{name: getattr(module, name) for name in functions} | facts)


KINDS: dict[Kind, TaskHandlers] = {
    "classification": _handlers_in(sequences, stratified=True, labelled=WITH_CLASSES, most_scored_labels=2),
    "regression": _handlers_in(
        sequences, numbers=True, baseline_facts=Baseline(words="the mean value"), most_scored_labels=0
    ),
    "multilabel": _handlers_in(
        sequences,
        label_column="labels",
        labelled=WITH_SEVERAL_LABELS,
        baseline_facts=Baseline(words="the labels of most rows"),
    ),
    "ranking": _handlers_in(
        ranking,
        numbers=True,
        baseline_facts=Baseline(words="words of the query", learns="nothing"),
        most_scored_labels=0,
    ),
    "similarity": _handlers_in(similarity, makes_vectors=True, baseline_facts=SHARED_WORDS),
    "matching": _handlers_in(
        matching,
        makes_vectors=True,
        saved_as="similarity",
        baseline_facts=SHARED_WORDS,
    ),
    "relations": _handlers_in(relations, stratified=True, makes_vectors=True, saved_as="similarity"),
    "tags": _handlers_in(
        tags,
        label_column="labels",
        rows=OF_WORDS,
        labelled=WITH_TAGS,
        baseline_facts=Baseline(words="each word's commonest tag", learns="words"),
    ),
    "spans": _handlers_in(
        questions,
        label_column="labels",
        rows=OF_QUESTIONS,
        labelled=WITH_ANSWERS,
        baseline_facts=Baseline(words="no answer", learns="nothing"),
    ),
    "choices": _handlers_in(
        choices,
        rows=OF_CHOICES,
        labelled=WITH_CHOSEN,
        baseline_facts=Baseline(words="the commonest number", learns="labels"),
    ),
}


def saved_task(task: Task) -> Task:
    """Return the task of the model that is saved after training, whose kind may be another one."""
    kind = KINDS[task.kind].saved_as
    if kind is None:
        return task
    saved = replace(task, kind=kind, labels=(), metrics=VALUE_METRICS[kind], paired=True)
    return with_lengths(saved, task.dimensions)
