"""Relations as a kind of task: each of two texts is encoded alone, and a head tells the class of the pair.

Shapes: N pairs, L lengths of vectors: whole, then those of the task's dimensions.
"""

from typing import Any

import numpy as np

from pipeline.config.cutting import Truncation
from pipeline.tasks import sequences, similarity
from pipeline.tasks.metrics.label_metrics import METRICS
from pipeline.tasks.metrics.lengths import of_whole_vectors, scores_at
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.task import Task

prepare = similarity.prepare


def answers(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> np.ndarray:
    """Return the class of each pair by the vectors of each length, int64 (N, L); `logits` are (L, classes) per pair."""
    return np.stack(list(logits)).argmax(axis=-1)


def score(task: Task, prepared: Prepared, classes: np.ndarray, thresholds: Thresholds) -> dict[str, float]:
    """Return the task's metrics."""
    true = sequences.true_labels(task, prepared)
    return scores_at(task, lambda name, place: METRICS[name](classes[:, place], true))


def tune(task: Task, prepared: Prepared, classes: np.ndarray) -> Thresholds:
    """Return no values, because classes need no threshold."""
    return {}


def baseline(task: Task, train: Prepared, prepared: Prepared) -> dict[str, float]:
    """Return the metrics of the most frequent class in training."""
    return sequences.baseline(of_whole_vectors(task), train, prepared)


def collapsed(task: Task, prepared: Prepared, classes: np.ndarray) -> bool:
    """Return whether all pairs get the same class although their labels differ."""
    whole, true = classes[:, 0], sequences.true_labels(task, prepared)
    return bool((whole == whole[:1]).all() and (true != true[:1]).any())


def details(task: Task, prepared: Prepared, classes: np.ndarray, thresholds: Thresholds) -> dict[str, Any]:
    """Return an empty dict, because `score` already has all results."""
    return {}
