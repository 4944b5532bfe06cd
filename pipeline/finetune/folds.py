"""Folds of a training file for cross-validation: which row is in which, and which problems are folds of one task."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.errors import DataError
from pipeline.finetune.contents import Text, texts_of
from pipeline.tasks.task import Task
from pipeline.train.trial import generator

FOLDS = 7_002
"""Stream of the generator that deals rows to folds."""


def fold_numbers(task: Task, items: Any, folds: int) -> np.ndarray:
    """Return the fold of each item, int64 (items,), from 0: the same in every run of the same file.

    Items of the same text, and questions on the same context, are in the same fold. Classes are stratified: a class has
    as many rows in each fold as in the others, one more or less where no text is there twice. Raises DataError for fewer texts than folds.
    """
    groups: dict[Text, list[int]] = {}
    for place, text in enumerate(grouped_by(items)):
        groups.setdefault(text, []).append(place)
    if len(groups) < folds:
        raise DataError(
            f"search.folds ({folds}) is more than the {len(groups):,} different texts of train: "
            "give more rows, or fewer folds"
        )
    ones = list(groups.values())
    drawn = [ones[place] for place in generator(0, FOLDS).permutation(len(ones))]
    classes = items["label"].to_pylist() if task.kind == "classification" else [""] * len(items)
    of_class = {name: np.zeros(folds, np.int64) for name in classes}
    rows, found = np.zeros(folds, np.int64), np.empty(len(items), np.int64)
    # sorting keeps the order that was drawn
    for group in sorted(drawn, key=lambda group: (classes[group[0]], -len(group))):
        mine = of_class[classes[group[0]]]
        fold = min(range(folds), key=lambda fold: (mine[fold], rows[fold]))
        found[group] = fold
        mine[fold] += len(group)
        rows[fold] += len(group)
    return found


def grouped_by(items: Any) -> Sequence[Text]:
    """Return what items of one fold share: their text; of questions the context."""
    if isinstance(items, pa.Table) or hasattr(items[0], "words"):
        return texts_of(items)
    return [item.context for item in items]


def by_task(problems: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return task -> names of its problems: itself, or its folds."""
    found: dict[str, list[str]] = {}
    for name, problem in problems.items():
        found.setdefault(problem.fold_of or name, []).append(name)
    return found
