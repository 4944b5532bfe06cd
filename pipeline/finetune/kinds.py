"""Table of kinds of tasks: how each is fine-tuned, beyond its module in `objectives/tasks.py`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.task_kind import Kind
from pipeline.errors import DataError
from pipeline.finetune import contents, fitting, row_scores
from pipeline.finetune.candidates import grouped
from pipeline.finetune.contents import Text
from pipeline.finetune.row_scores import RowScore
from pipeline.finetune.teaching import OF_LABELS, OF_SCORES, Teaching
from pipeline.tasks.matches import require_scored_negatives
from pipeline.tasks.prepared import Logits, Prepared
from pipeline.tasks.ranking import require_ranked
from pipeline.tasks.task import Task


def _accept(*given: Any) -> None:
    """Find nothing wrong."""


@dataclass(frozen=True, kw_only=True)
class TrainingHandlers:
    """The functions and facts by which a kind of task is fine-tuned: its settings, rows and teachers."""

    groups: tuple[str, ...] = ()
    """Groups of settings that only this kind and a few others have; they define its trials too."""
    recipe: tuple[str, ...] = ()
    """Settings of `recipe` that only this kind and a few others have."""
    require_fitting: Callable[[Finetune, Task, Model], None] = _accept
    """Raise ConfigError for settings that do not fit the task or the checkpoint's model."""
    require_trainable: Callable[[Task, Prepared, Mapping[str, Prepared]], None] = _accept
    """Raise DataError for a training split that teaches nothing, or for other splits that cannot be scored."""
    facts: Callable[[Finetune], dict[str, Any]] = lambda config: {}
    """Return the settings of the loss by dotted name, for the model card."""
    teaching: Teaching | None = None
    """Teaching of the kind by a fine-tuned model; None: there is none."""
    labels_in_words: Callable[[Task, Prepared], str]
    """Return words about a split's labels; may be ""."""
    label_sets: Callable[[Any], list[set[str]]] = contents.no_sets
    """Return for each item the names that a model can only predict if the training split has them."""
    fold_groups: Callable[[Any], Sequence[Text]] = contents.texts_of
    """Return a value for each item; items with the same value must be in the same fold."""
    served_columns: Callable[[Any], dict[str, list[Any]]] = contents.text_columns
    """Return items as columns, in the form that a served model takes."""
    epoch_rows: Callable[[pa.Table, Finetune, int], pa.Table] = lambda rows, config, seed: rows
    """Function of (sampled rows, settings, seed) that returns the rows of an epoch."""
    row_score: Callable[[Task, Prepared, Logits, Truncation], RowScore] | None = None
    """Score any rows of a split; None: the score of a saved model is not computed from one answer per item."""


def _require_different_scores(task: Task, train: Prepared, splits: Mapping[str, Prepared]) -> None:
    """Raise DataError if all training rows have the same score."""
    if len(set(train.rows["label"].to_pylist())) == 1:
        raise DataError(
            f"{task.name}: all {train.rows.num_rows:,} training rows have the score {train.rows['label'][0]}, and "
            "training compares rows of different scores: give rows of at least two scores"
        )


def _require_negatives(task: Task, train: Prepared, splits: Mapping[str, Prepared]) -> None:
    """Raise DataError as `require_scored_negatives` does for each split."""
    for name, split in splits.items():
        remedy = "name a development file with --dev, or set search.folds lower"
        require_scored_negatives(task, f"{task.name} {name}", split.items, remedy)


def _require_ranked(task: Task, train: Prepared, splits: Mapping[str, Prepared]) -> None:
    """Raise DataError as `require_ranked` does for each split, also for that of training."""
    for name, split in {"train": train, **splits}.items():
        require_ranked(task, name, split)


def _candidates(rows: pa.Table, config: Finetune, seed: int) -> pa.Table:
    """Return rows with several candidates of a query each, if the loss compares them."""
    return grouped(rows, config.ranking.candidates, seed) if config.ranking.grouped else rows


TRAINING: dict[Kind, TrainingHandlers] = {
    "classification": TrainingHandlers(
        recipe=("balance_classes", "rows_per_class", "contrastive_pairs"),
        teaching=OF_LABELS,
        labels_in_words=contents.class_counts,
        label_sets=contents.class_sets,
        row_score=row_scores.score_of_labels,
    ),
    "multilabel": TrainingHandlers(
        teaching=OF_LABELS,
        labels_in_words=contents.label_counts,
        label_sets=contents.label_sets,
        row_score=row_scores.score_of_labels,
    ),
    "regression": TrainingHandlers(
        teaching=OF_LABELS, labels_in_words=contents.value_range, row_score=row_scores.score_of_labels
    ),
    "ranking": TrainingHandlers(
        groups=("ranking",),
        require_fitting=fitting.require_ranking,
        require_trainable=_require_ranked,
        facts=fitting.ranking_facts,
        teaching=OF_SCORES,
        labels_in_words=contents.value_range,
        fold_groups=contents.queries_of,
        epoch_rows=_candidates,
    ),
    "similarity": TrainingHandlers(
        groups=("similarity",),
        require_fitting=fitting.require_scores,
        require_trainable=_require_different_scores,
        facts=fitting.similarity_facts,
        labels_in_words=contents.value_range,
        row_score=row_scores.score_of_cosines,
    ),
    "matching": TrainingHandlers(
        groups=("similarity",),
        require_fitting=fitting.require_matches,
        require_trainable=_require_negatives,
        facts=fitting.similarity_facts,
        labels_in_words=contents.negative_counts,
    ),
    "relations": TrainingHandlers(
        groups=("similarity",),
        require_fitting=fitting.require_relations,
        facts=fitting.similarity_facts,
        labels_in_words=contents.class_counts,
        label_sets=contents.class_sets,
    ),
    "tags": TrainingHandlers(
        recipe=("balance_classes", "crf"),
        labels_in_words=contents.tag_counts,
        label_sets=contents.tag_sets,
        served_columns=contents.sentence_columns,
    ),
    "spans": TrainingHandlers(
        labels_in_words=contents.unanswered_questions,
        fold_groups=contents.contexts_of,
        served_columns=contents.question_columns,
        row_score=row_scores.score_of_questions,
    ),
    "choices": TrainingHandlers(
        require_fitting=fitting.require_choices,
        labels_in_words=contents.class_counts,
        row_score=row_scores.score_of_choices,
    ),
}
"""Kind of task -> how it is fine-tuned; messages that list kinds list them in this order."""
