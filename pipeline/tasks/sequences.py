"""Tasks on texts or pairs of texts: one class, several labels or a number for each."""

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.config.task_kind import VALUE_METRICS
from pipeline.tasks.encoding import encode, mean_logits
from pipeline.tasks.metrics import label_metrics
from pipeline.tasks.metrics.label_metrics import majority, tuned_thresholds
from pipeline.tasks.metrics.label_metrics import score as class_score
from pipeline.tasks.passages import whole_texts
from pipeline.tasks.prepared import Logits, Prepared, Thresholds
from pipeline.tasks.tables import left_out
from pipeline.tasks.task import Task
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary

MOST_CONFUSED = 200
"""Maximum number of classes for a confusion matrix: a matrix of 20,000 classes would have 400 million counts."""


def prepare(task: Task, items: pa.Table, vocabulary: Vocabulary, cutting: Truncation) -> Prepared:
    """Encode a table of TEXTS; longer texts are truncated, or split into passages if cutting.passages is set.

    A row is a passage, or with cutting.passage_pooling max or attention a whole text.
    """
    encoded = encode(
        task,
        items,
        CachedTokenizer(vocabulary, special_added=True),
        cutting.maximum_length,
        cutting.stride if cutting.passages else None,
    )
    rows, cut, notes, lost = encoded.rows, encoded.cut, [], left_out(items)
    if cut:
        notes.append(f"{cut:,} cut at {cutting.maximum_length} tokens (--cutting.passages reads the rest)")
    if encoded.passages:
        notes.append(f"{encoded.passages:,} in several passages of {cutting.maximum_length} tokens")
    if cutting.pools_passages:
        rows, longer, passages = whole_texts(rows, cutting.maximum_passages)
        cut += longer
        notes += [_passages_left_out(longer, passages, cutting)] if longer else []
    notes += [f"{len(lost)} lines left out, the first: {lost[0]}"] if lost else []
    return Prepared(items=items, rows=rows, cut=cut, notes=tuple(notes))


def _passages_left_out(texts: int, passages: int, cutting: Truncation) -> str:
    """Return the note about texts with more than cutting.maximum_passages passages."""
    return (
        f"{texts:,} longer than {cutting.maximum_passages} passages, of which {passages:,} passages are left out "
        "(--cutting.maximum-passages reads more)"
    )


def answers(task: Task, prepared: Prepared, logits: Logits, cutting: Truncation) -> np.ndarray:
    """Return each text's logits, float64 (texts, classes): the mean over the rows of the text."""
    return mean_logits(prepared.rows["row"].to_numpy(), np.asarray(logits, np.float32))


def _first_rows(prepared: Prepared) -> np.ndarray:
    """Return whether each row is the first of its text, bool (rows,)."""
    return np.diff(prepared.rows["row"].to_numpy(), prepend=-1) != 0


def true_labels(task: Task, prepared: Prepared) -> np.ndarray:
    """Return the labels, float32: class numbers or values (texts,), or for multilabel 0 and 1 (texts, classes)."""
    rows = prepared.rows.filter(pa.array(_first_rows(prepared)))
    if task.kind == "multilabel":
        return rows["labels"].combine_chunks().flatten().to_numpy().reshape(-1, len(task.labels))
    return rows["label"].to_numpy()


def probabilities(task: Task, logits: np.ndarray) -> np.ndarray:
    """Return probabilities, float64 (texts, classes): softmax, or sigmoid for multilabel."""
    wide = logits.astype(np.float64)
    if task.kind == "multilabel":
        return 0.5 * (1 + np.tanh(0.5 * wide))  # the logistic function, without overflow
    shares = np.exp(wide - wide.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def predicted_labels(task: Task, outputs: np.ndarray, thresholds: Thresholds) -> np.ndarray:
    """Return class numbers or values (texts,), or for multilabel 0 and 1 (texts, classes).

    `outputs` is the result of `answers`.
    """
    if task.kind in VALUE_METRICS:
        return outputs[:, 0].astype(np.float64)
    if task.kind == "multilabel":
        return (
            probabilities(task, outputs) >= np.asarray(thresholds.get("thresholds", [0.5] * len(task.labels)))
        ).astype(np.int64)
    return outputs.argmax(-1)


def tune(task: Task, prepared: Prepared, outputs: np.ndarray) -> Thresholds:
    """Return for each label the threshold with the highest F1 on these texts, and the scores at these thresholds.

    The result is empty if the kind is not multilabel.
    """
    if task.kind != "multilabel":
        return {}
    thresholds = [float(value) for value in tuned_thresholds(probabilities(task, outputs), true_labels(task, prepared))]
    with_them = score(task, prepared, outputs, {"thresholds": thresholds})
    return {"thresholds": thresholds} | {f"{name}_tuned_on_dev": value for name, value in with_them.items()}


def score(task: Task, prepared: Prepared, outputs: np.ndarray, thresholds: Thresholds) -> dict[str, float]:
    """Return the task's metrics."""
    ranked = any(name in label_metrics.RANKED for name in task.metrics)
    return class_score(
        task,
        predicted_labels(task, outputs, thresholds),
        true_labels(task, prepared),
        probabilities(task, outputs) if ranked else None,
    )


def baseline(task: Task, train: Prepared, prepared: Prepared) -> dict[str, float]:
    """Return the metrics of the constant answer that `majority` chooses from the training labels."""
    return majority(task, true_labels(task, train), true_labels(task, prepared))


def collapsed(task: Task, prepared: Prepared, outputs: np.ndarray) -> bool:
    """Return whether all texts get the same answer although their labels differ.

    Answers that are numbers count as the same if their range is below a thousandth of the labels' range, or if an
    answer is not finite.
    """
    predicted, true = predicted_labels(task, outputs, {}), true_labels(task, prepared)
    if task.kind in VALUE_METRICS:
        return not np.isfinite(predicted).all() or bool(np.ptp(predicted) < 1e-3 * max(np.ptp(true), 1e-9))
    return bool((predicted == predicted[:1]).all() and (true != true[:1]).any())


def details(task: Task, prepared: Prepared, outputs: np.ndarray, thresholds: Thresholds) -> dict[str, Any]:
    """Return the scores of each class or label, and for classification with few classes the confusion matrix."""
    if task.kind not in ("classification", "multilabel"):
        return {}
    predicted, true = predicted_labels(task, outputs, thresholds), true_labels(task, prepared)
    figures = {"labels": list(task.labels), "per_class": label_metrics.per_class(task, predicted, true)}
    has_confusion = task.kind == "classification" and len(task.labels) <= MOST_CONFUSED
    return figures | ({"confusion": label_metrics.confusion(task, predicted, true).tolist()} if has_confusion else {})
