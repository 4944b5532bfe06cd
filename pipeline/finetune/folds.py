"""Cross-validation: assign the rows of a training file to folds, and group folds by task."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.errors import DataError
from pipeline.finetune.contents import Text
from pipeline.finetune.kinds import TRAINING
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.task import Task
from pipeline.text.randomness import numbered_generator

FOLDS = 7_002
"""Key of the random generator that assigns rows to folds."""


def fold_numbers(task: Task, items: Any, folds: int) -> np.ndarray:
    """Return the fold number of each item, from 0: int64 (items,). The same file always gets the same numbers.

    Items with the same text, questions on the same context, and the candidates of a query are in one fold. Classes are
    stratified: if no text is duplicated, the counts of a class in any two folds differ by at most one. Raises DataError
    if there are fewer distinct texts (or contexts, or queries) than folds.
    """
    groups: dict[Text, list[int]] = {}
    for index, text in enumerate(TRAINING[task.kind].fold_groups(items)):
        groups.setdefault(text, []).append(index)
    if len(groups) < folds:
        raise DataError(
            f"search.folds ({folds}) must be at most {len(groups):,}, the number of different texts in train: "
            "give more rows, or fewer folds"
        )
    unshuffled = list(groups.values())
    shuffled = [unshuffled[index] for index in numbered_generator(0, FOLDS).permutation(len(unshuffled))]
    classes = items["label"].to_pylist() if KINDS[task.kind].stratified else [""] * len(items)
    rows_by_class = {name: np.zeros(folds, np.int64) for name in classes}
    rows, numbers = np.zeros(folds, np.int64), np.empty(len(items), np.int64)
    # Large groups come first, because small groups can then even out the folds. Sorting is stable, so groups of the
    # same class and size keep their random order.
    for group in sorted(shuffled, key=lambda group: (classes[group[0]], -len(group))):
        class_rows = rows_by_class[classes[group[0]]]
        fold = min(range(folds), key=lambda fold: (class_rows[fold], rows[fold]))
        numbers[group] = fold
        class_rows[fold] += len(group)
        rows[fold] += len(group)
    return numbers


def by_task(problems: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return task -> names of its problems: the task's own name or, with cross-validation, the names of its folds."""
    names: dict[str, list[str]] = {}
    for name, problem in problems.items():
        names.setdefault(problem.fold_of or name, []).append(name)
    return names
