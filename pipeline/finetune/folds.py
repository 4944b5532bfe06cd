"""Cross-validation folds of a training file: assign rows to folds, and group folds by task."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.errors import DataError
from pipeline.finetune.contents import Text, texts_of
from pipeline.tasks.task import Task
from pipeline.text.randomness import numbered_generator

FOLDS = 7_002
"""Generator stream that assigns rows to folds."""


def fold_numbers(task: Task, items: Any, folds: int) -> np.ndarray:
    """Return the fold of each item, int64 (items,), from 0; the same in every run of the same file.

    Items with the same text, and questions on the same context, share a fold. Classes are stratified: their counts per
    fold differ by at most one if no text is duplicated. Raises DataError for fewer distinct texts than folds.
    """
    groups: dict[Text, list[int]] = {}
    for index, text in enumerate(_grouped_by(items)):
        groups.setdefault(text, []).append(index)
    if len(groups) < folds:
        raise DataError(
            f"search.folds ({folds}) is more than the {len(groups):,} different texts of train: "
            "give more rows, or fewer folds"
        )
    unshuffled = list(groups.values())
    shuffled = [unshuffled[index] for index in numbered_generator(0, FOLDS).permutation(len(unshuffled))]
    classes = items["label"].to_pylist() if task.kind == "classification" else [""] * len(items)
    of_class = {name: np.zeros(folds, np.int64) for name in classes}
    rows, numbers = np.zeros(folds, np.int64), np.empty(len(items), np.int64)
    # sorting is stable and keeps the shuffled order
    for group in sorted(shuffled, key=lambda group: (classes[group[0]], -len(group))):
        mine = of_class[classes[group[0]]]
        fold = min(range(folds), key=lambda fold: (mine[fold], rows[fold]))
        numbers[group] = fold
        mine[fold] += len(group)
        rows[fold] += len(group)
    return numbers


def _grouped_by(items: Any) -> Sequence[Text]:
    """Return what items of one fold share: their text, or the context of questions."""
    if isinstance(items, pa.Table) or hasattr(items[0], "words"):
        return texts_of(items)
    return [item.context for item in items]


def by_task(problems: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return task -> names of its problems: its own name, or its folds."""
    names: dict[str, list[str]] = {}
    for name, problem in problems.items():
        names.setdefault(problem.fold_of or name, []).append(name)
    return names
