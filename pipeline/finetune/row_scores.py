"""Scores of any rows of a split, for tasks whose score is computed from one answer per item."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline.config.cutting import Truncation
from pipeline.tasks import choices, questions, sequences, similarity
from pipeline.tasks.metrics import label_metrics
from pipeline.tasks.metrics.lengths import place_of
from pipeline.tasks.metrics.squad import best_of
from pipeline.tasks.prepared import Logits, Prepared
from pipeline.tasks.task import Task

RowScore = Callable[[np.ndarray], float]
"""Function that takes the indices of items, int64 (n,), and returns the selecting metric of these items."""


def score_of_labels(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> RowScore:
    """Return the scores of classes, labels or numbers."""
    outputs = sequences.answers(task, prepared, logits, cutting)
    ranked = task.metrics[0] in label_metrics.RANKED
    answers = sequences.probabilities(task, outputs) if ranked else sequences.predicted_labels(task, outputs, {})
    return score_of_answers(task, prepared, answers)


def score_of_cosines(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> RowScore:
    """Return the scores of the cosines of pairs, by vectors of the length that the metric names."""
    name, place = place_of(task, task.metrics[0])
    cosines = similarity.answers(task, prepared, logits, cutting)[:, place]
    return score_of_answers(replace(task, metrics=(name,)), prepared, cosines)


def score_of_choices(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> RowScore:
    """Return the share of rows whose best choice is the right one."""
    numbers = choices.chosen(choices.answers(task, prepared, logits, cutting))
    right = numbers == choices.true_choices(prepared.items)
    return lambda rows: float(right[rows].mean())


def score_of_questions(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> RowScore:
    """Return the scores of answers without tuned thresholds, as in the scores of the trials."""
    which = 1 if task.metrics[0] == "f1" else 0
    texts = questions.texts_of(task, questions.answers(task, prepared, logits, cutting), {})
    normalise = questions.normaliser(task)
    pairs = [best_of(texts[item.id], item, task.unanswerable, normalise) for item in prepared.items]
    values = np.array([pair[which] for pair in pairs])
    return lambda rows: float(values[rows].mean())


def score_of_answers(task: Task, prepared: Prepared, answers: np.ndarray) -> RowScore:
    """Return the scores of `answers` by the task's first metric.

    If the metric is in RANKED, `answers` are probabilities (items, classes). Otherwise they are predicted labels:
    (items,), or (items, classes) for multilabel.
    """
    true, name = sequences.true_labels(task, prepared), task.metrics[0]
    measure = (label_metrics.METRICS | label_metrics.RANKED)[name]
    return lambda rows: measure(answers[rows], true[rows])
