"""A split of a task as a model sees it, and what every kind of task has to say about it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.finetune import Cutting
from pipeline.errors import ConfigError
from pipeline.tasks.task import Task

DEFAULT_STRIDE = {"spans": 128}
OTHER_STRIDE = 32

Logits = Sequence[np.ndarray]
"""What a model says of each row of a table, in the rows' order: float32 (classes,), or (L, classes) where it speaks of tokens."""
Tuned = dict[str, Any]
"""What is chosen on the development set beside the weights, such as thresholds; as JSON writes it."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Texts, sentences or questions, and their rows as ids."""

    items: Any
    """A table of TEXTS, or a list of Sentence or of Question."""
    rows: pa.Table
    """Schema ENCODED; `row` is the place of the item that a row is of."""
    windows: Sequence[Sequence[Any]] = ()
    """Of each sentence or question its windows, which are the rows in their order."""
    cut: int = 0
    """Texts that lost tokens to the length."""
    notes: tuple[str, ...] = ()
    """What was cut or left out, with counts."""


def resolved_cutting(cutting: Cutting, task: Task, positions: int) -> Cutting:
    """The cutting with a length and a stride: those set, or the task's where the model's `positions` allow it. Raises ConfigError for a length beyond them."""
    if (cutting.maximum_length or 0) > positions:
        raise ConfigError(
            f"cutting.maximum_length ({cutting.maximum_length}) must be at most the checkpoint's positions ({positions})"
        )
    length = cutting.maximum_length or min(task.maximum_length, positions)
    stride = min(DEFAULT_STRIDE.get(task.kind, OTHER_STRIDE), length // 3) if cutting.stride is None else cutting.stride
    return replace(
        cutting, maximum_length=length, stride=stride, question_length=min(cutting.question_length, length // 4)
    )
