"""Definition of a task: its labels and their numbers, its metrics, and the files of its splits."""

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
"""Number of classes up to which even very few rows make a task."""
ROWS_PER_CLASS = 2
"""Average rows per class below which the column is assumed not to hold classes."""
PLAIN = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*%?")
"""A number with a decimal point or comma, optionally with a percent sign."""
LARGEST = 1e30
"""Maximum absolute value of a regression label."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """One tab-separated file of a task, and the role of its columns."""

    name: str
    """train, dev or test; further splits of a kind have a suffix, as in dev-mismatched."""
    file: str
    """Path below the folder of all tasks."""
    first: str = ""
    """Column of the text; unused for questions and tagged words, which have their own file formats."""
    second: str | None = None
    label: str | None = "label"
    """None: a test split, whose labels are not public. For tagged words, the column's number."""
    id: str = "index"
    """Without this column, rows are numbered from 0."""
    headings: tuple[str, ...] = ()
    """Names of all columns, for a file without a header line."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A prediction task: one class per text or pair, several (multilabel), a number, a tag per word, or a span."""

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    """Class names as written in the files, in the order of their numbers; empty for regression."""
    metrics: tuple[str, ...]
    """Names in pipeline.tasks.metrics; the first one selects settings."""
    maximum_length: int = 128
    """Tokens per row, special tokens included."""
    splits: tuple[Split, ...] = ()
    paired: bool = False
    """Whether rows are pairs of texts; inputs for prediction must then be pairs too."""
    unanswerable: bool = False
    """Whether some questions have no answer (SQuAD 2.0)."""
    skips_broken_lines: bool = False
    """Whether unreadable lines of labelled splits are skipped and reported; otherwise the first one is an error."""

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Label -> class number."""
        return {label: float(number) for number, label in enumerate(self.labels)}

    def split(self, name: str) -> Split:
        """Return the split of this name. Raises DataError that lists the task's splits."""
        for split in self.splits:
            if split.name == name:
                return split
        raise DataError(
            f"task {self.name} has no split {name}; it has {', '.join(split.name for split in self.splits)}"
        )

    def number(self, label: str) -> float:
        """Return a label's class number, or its value for regression. Raises ValueError with a short message."""
        if self.kind == "regression":
            return finite(label)
        if label not in self.numbers:
            raise ValueError(f"label {shown(label)} is not among the labels of {self.name} ({listed(self.labels)})")
        return self.numbers[label]

    def indicators(self, label: str) -> list[float]:
        """For multilabel, return 1 for each class in a JSON list of labels and 0 for the others.

        Raises ValueError with a short message.
        """
        named = {self.number(name) for name in several(label)}
        return [float(number in named) for number in range(len(self.labels))]


def several(label: str) -> list[str]:
    """Parse a multilabel row's labels, a JSON list of texts. Raises ValueError with a short message."""
    names = list_in(label)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ValueError(f"label {shown(label)} is not a list of labels")
    return names


def list_in(value: Any) -> list[Any] | None:
    """Return a value that is a list, or a text that holds a JSON list; None otherwise."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


def finite(label: str) -> float:
    """Parse a label as a number. Raises ValueError with a short message for NaN, infinity and anything else."""
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if math.isfinite(value) and abs(value) > LARGEST:
        raise ValueError(f"label {shown(label)} is larger than {LARGEST:g} in absolute value, the limit for training")
    if not math.isfinite(value):
        meant = number_in(label)
        raise ValueError(f"label {shown(label)} is not a number" + (f"; write {meant:g}" if meant is not None else ""))
    return value


def number_in(label: str) -> float | None:
    """Parse a number with an optional percent sign or decimal comma: 12.5 for "12.50%", 0.14 for "0,14"; None
    otherwise.
    """
    match = PLAIN.fullmatch(label.strip())
    value = float(match[1].replace(",", ".")) if match else math.inf
    return value if math.isfinite(value) else None


def require_few_classes(location: str, labels: Sequence[str]) -> None:
    """Raise DataError if there are nearly as many classes as rows: the column probably holds texts, ids or values."""
    classes = set(labels)
    if len(classes) > FEW_CLASSES and ROWS_PER_CLASS * len(classes) > len(labels):
        raise DataError(
            f"{location}: {len(classes):,} different labels in {len(labels):,} rows, the first {shown(labels[0])}: "
            f"fewer than {ROWS_PER_CLASS} rows for each; "
            "name the column of the label with --label, or pass --kind classification if each of them is a class"
        )


def require_trainable(texts: pa.Table, location: str) -> None:
    """Raise DataError unless a training split has at least two different labels."""
    labels = Counter(texts["label"].to_pylist())
    if len(labels) == 1:
        raise DataError(
            f"{location}: all {texts.num_rows} rows have the label {shown(next(iter(labels)))}; training needs two "
            "different ones at least"
        )
