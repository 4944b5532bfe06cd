"""Counts as a kind of task: a whole number from 0 on for each text, such as how often something is named in it."""

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.errors import DataError
from pipeline.tasks import sequences
from pipeline.tasks.metrics.label_metrics import score as class_score
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.sequences import true_labels
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary

SAME_COUNT = 1e-3
"""A model whose expected counts lie within this range gives the same answer to all texts."""


def prepare(task: Task, items: pa.Table, vocabulary: Vocabulary, cutting: Truncation) -> Prepared:
    """Encode a table of TEXTS as `sequences.prepare`. Raises DataError for a label that is no count."""
    prepared = sequences.prepare(task, items, vocabulary, cutting)
    labels = true_labels(task, prepared)
    if (wrong := labels[(labels < 0) | (labels != np.floor(labels)) & ~np.isnan(labels)]).size:
        raise DataError(f"{task.name} has the label {wrong[0]:g}, but a count is a whole number from 0 on")
    return prepared


def answers(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> np.ndarray:
    """Return each text's expected count, float64 (texts, 1)."""
    return sequences.answers(task, prepared, logits, cutting)


def score(task: Task, prepared: Prepared, outputs: np.ndarray, thresholds: Thresholds) -> dict[str, float]:
    """Return the task's metrics."""
    return class_score(task, outputs[:, 0], true_labels(task, prepared))


def tune(task: Task, prepared: Prepared, outputs: np.ndarray) -> Thresholds:
    """Return no values, because a count needs no threshold."""
    return {}


def baseline(task: Task, train: Prepared, prepared: Prepared) -> dict[str, float]:
    """Return the metrics of the mean count of the training texts."""
    labels = true_labels(task, prepared)
    return class_score(task, np.full(len(labels), true_labels(task, train).mean()), labels)


def collapsed(task: Task, prepared: Prepared, outputs: np.ndarray) -> bool:
    """Return whether all expected counts are nearly the same, or one is not finite."""
    return not np.ptp(outputs[:, 0]) >= SAME_COUNT


def details(task: Task, prepared: Prepared, outputs: np.ndarray, thresholds: Thresholds) -> dict[str, Any]:
    """Return an empty dict, because `score` already has all results."""
    return {}
