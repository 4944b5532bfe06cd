"""What a task is: its labels and their numbers, its metrics, and where its rows lie."""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from pipeline.errors import DataError, listed, shown

Kind = Literal["classification", "regression", "multilabel", "tags", "spans"]
FEW_CLASSES = 10
"""Classes up to which a few rows are a task, however few they are."""
ROWS_PER_CLASS = 2
"""Rows per class, on average, below which labels are taken for something else."""
PLAIN = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*%?")
"""A number with a decimal point or comma, perhaps in percent."""
LARGEST = 1e30
"""Absolute value of a label."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """One tab-separated file of a task, and which of its columns are what."""

    name: str
    """train, dev or test; a task with more than one of a kind adds to the name, as in dev-mismatched."""
    file: str
    """Path below the folder of all tasks."""
    first: str = ""
    """Column of the text; of questions and tagged words, whose files have forms of their own, nothing."""
    second: str | None = None
    label: str | None = "label"
    """None: a test split, whose labels are not public. Of tagged words the number of the column."""
    id: str = "index"
    """A file without this column has rows numbered from 0."""
    headings: tuple[str, ...] = ()
    """Names of all columns of a file without a header line."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked of a text or of a pair of texts: one of several classes, any number of them (multilabel), or a number."""

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    """The classes as written in the files, in the order of their numbers; none for a regression."""
    metrics: tuple[str, ...]
    """Names in pipeline.tasks.metrics, the one that settings are selected by first."""
    maximum_length: int = 128
    """Tokens of a row with its special tokens."""
    splits: tuple[Split, ...] = ()
    paired: bool = False
    """Whether its rows are pairs of texts; what is answered must be pairs then."""
    unanswerable: bool = False
    """Whether some questions have no answer (SQuAD 2.0)."""
    skips_broken_lines: bool = False
    """Whether labelled splits leave out, and name, the lines that cannot be read; else the first one is an error."""

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Label -> its class number."""
        return {label: float(number) for number, label in enumerate(self.labels)}

    def split(self, name: str) -> Split:
        """The split of this name. Raises DataError that names the task's splits."""
        for split in self.splits:
            if split.name == name:
                return split
        raise DataError(
            f"task {self.name} has no split {name}; it has {', '.join(split.name for split in self.splits)}"
        )

    def number(self, label: str) -> float:
        """A label's class number, or its value in a regression. Raises ValueError in a few words."""
        if self.kind == "regression":
            return finite(label)
        if label not in self.numbers:
            raise ValueError(f"label {shown(label)} is none of the labels of {self.name} ({listed(self.labels)})")
        return self.numbers[label]

    def indicators(self, label: str) -> list[float]:
        """Of a multilabel task: 1 for each class that a JSON list of texts names, 0 for the others. Raises ValueError in a few words."""
        named = {self.number(name) for name in several(label)}
        return [float(number in named) for number in range(len(self.labels))]


def several(label: str) -> list[str]:
    """The labels that a row of a multilabel task has, written as a JSON list of texts. Raises ValueError in a few words."""
    found = list_in(label)
    if found is None or not all(isinstance(name, str) for name in found):
        raise ValueError(f"label {shown(label)} is no list of labels")
    return found


def list_in(value: Any) -> list[Any] | None:
    """A value that is a list, or a text that holds a list as JSON; None for all else."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


def finite(label: str) -> float:
    """The number that a label says. Raises ValueError in a few words for NaN, infinity and all else."""
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and abs(value) > LARGEST:
        raise ValueError(f"label {shown(label)} is beyond what a model computes with ({LARGEST:g})")
    if not math.isfinite(value):
        meant = number_in(label)
        raise ValueError(f"label {shown(label)} is not a number" + (f"; write {meant:g}" if meant is not None else ""))
    return value


def number_in(label: str) -> float | None:
    """Return the number that a label says where a percent sign and a decimal comma are allowed: 12.5 of "12.50%", 0.14 of "0,14"; None for all else."""
    found = PLAIN.fullmatch(label.strip())
    value = float(found[1].replace(",", ".")) if found else math.inf
    return value if math.isfinite(value) else None


def require_few_classes(location: str, labels: Sequence[str]) -> None:
    """Raise DataError where classes are nearly as many as rows: a column of texts, ids or values is no column of classes."""
    classes = set(labels)
    if len(classes) > FEW_CLASSES and ROWS_PER_CLASS * len(classes) > len(labels):
        raise DataError(
            f"{location}: {len(classes):,} different labels in {len(labels):,} rows, the first {shown(labels[0])}: fewer than {ROWS_PER_CLASS} rows for each; "
            "name the column of the label with --label, or say --kind classification if each of them is a class"
        )


def require_trainable(texts: pa.Table, location: str) -> None:
    """Raise DataError unless the labels of a training split are of two kinds at least."""
    labels = Counter(texts["label"].to_pylist())
    if len(labels) == 1:
        raise DataError(
            f"{location}: all {texts.num_rows} rows have the label {shown(next(iter(labels)))}; training needs two different ones at least"
        )
