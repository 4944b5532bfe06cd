"""One split of a task as model input, and the types that all kinds of task share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.errors import ConfigError, listed
from pipeline.tasks.task import Task

DEFAULT_STRIDE = {"spans": 128}
OTHER_STRIDE = 32
"""Default overlap of windows in tokens: DEFAULT_STRIDE by kind of task, OTHER_STRIDE for all other kinds."""
POOLED = ("classification", "multilabel", "regression")
"""Kinds of task for which cutting.passage_pooling may be max or attention."""
Logits = Sequence[np.ndarray]
"""A model's output per row of a table, in row order: float32 (classes,), or (L, classes) for token-level tasks."""
Thresholds = dict[str, Any]
"""Values other than weights, such as thresholds, that are chosen on the development set; JSON-serialisable."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The items of a split (texts, sentences or questions), and their rows of ids."""

    items: Any
    """A table of TEXTS, or a list of Sentence or of Question."""
    rows: pa.Table
    """Schema ENCODED; `row` is the index of the row's item."""
    windows: Sequence[Sequence[Any]] = ()
    """Windows of each sentence or question; concatenated, they are the rows in order. Empty for texts."""
    cut: int = 0
    """Number of truncated texts or questions."""
    notes: tuple[str, ...] = ()
    """Descriptions of what was truncated or left out, with counts."""


def resolved_cutting(cutting: Truncation, task: Task, positions: int) -> Truncation:
    """Return the cutting with all lengths and the stride filled in.

    The default of maximum_length is the task's maximum length, but at most the model's `positions`. The default of
    stride is DEFAULT_STRIDE or OTHER_STRIDE, but at most a third of maximum_length. question_length is reduced to at
    most a quarter of maximum_length.

    Raises ConfigError if maximum_length is set and exceeds `positions`, and if passage_pooling is set for a kind of
    task that has no passages.
    """
    if cutting.pools_passages and task.kind not in POOLED:
        raise ConfigError(
            f"cutting.passage_pooling ({cutting.passage_pooling}) is for {listed(POOLED)}, but {task.name} is of kind "
            f"{task.kind}: leave the setting out"
        )
    if (cutting.maximum_length or 0) > positions:
        raise ConfigError(
            f"cutting.maximum_length ({cutting.maximum_length}) must be at most the checkpoint's positions "
            f"({positions})"
        )
    length = cutting.maximum_length or min(task.maximum_length, positions)
    stride = min(DEFAULT_STRIDE.get(task.kind, OTHER_STRIDE), length // 3) if cutting.stride is None else cutting.stride
    return replace(
        cutting, maximum_length=length, stride=stride, question_length=min(cutting.question_length, length // 4)
    )


def outputs_of(task: Task, cutting: Truncation) -> int:
    """Return the number of outputs of a model's head.

    There is one per label, then one for continuation tags of their own, then one per intent.
    """
    return len(task.labels) + (task.kind == "tags" and cutting.continuation == "own") + len(task.intents)
