"""Definition of a task: its labels and their numbers, its metrics, and the files of its splits."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa

from pipeline.config.task_kind import VALUE_METRICS, Kind
from pipeline.errors import DataError, listed, shown
from pipeline.tables.spans import list_in

Layout = Literal["tab-separated", "ag-news", "snli", "toxicity", "trec-qa"]
"""Formats of files of texts; `layouts.LAYOUTS` has a reader for each."""
Script = Literal["squad", "triviaqa", "natural-questions"]
"""Official script whose scores answers to questions get."""
FEW_CLASSES = 10
"""With at most this number of classes, a task may have any number of rows per class."""
ROWS_PER_CLASS = 2
"""A column with fewer rows per class, on average, probably holds texts, ids or values instead of classes."""
PLAIN = re.compile(r"([+-]?\d+(?:[.,]\d+)?)\s*%?")
"""A number with a decimal point or comma, optionally with a percent sign."""
WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))\.0+")
"""A whole number that is written with decimals, as pandas writes the numbers of a column that has a gap."""
LARGEST = 1e30
"""Maximum absolute value of a regression label."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """One file of a task, and the roles of its columns."""

    name: str
    """train, dev or test; a second split of the same kind has a suffix, as in dev-mismatched."""
    file: str
    """Path below the folder of all tasks."""
    first: str = ""
    """Column of the text; not used for questions and tagged words, which have file formats of their own."""
    second: str | None = None
    """Column of the second text of a pair, or of the beginning that all choices share; None for single texts."""
    choices: tuple[str, ...] = ()
    """Columns of the texts to choose from; empty for other kinds of task."""
    label: str | None = "label"
    """Column of the label (for tagged words, the column's index as text); None if a test split has no labels."""
    intents: str = ""
    """For tagged words in three files, the name of the file of intents next to `file`; `label` names that of tags."""
    id: str = "index"
    """Column of the id; if the file lacks it, rows are numbered from 0. For kind ranking, the id of the row's query."""
    headings: tuple[str, ...] = ()
    """Names of all columns, for a file without a header line; empty: the first line names them."""
    layout: Layout = "tab-separated"
    held_out: bool | None = None
    """For a data set without a development file: True takes the tenth of the file's texts that `is_held_out` chooses,
    False all others; None takes all texts.
    """
    sections: tuple[str, ...] = ()
    """For a treebank, the subfolders of `file` whose trees are read; empty for other files."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A prediction task of one of the kinds in Kind."""

    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    """Class names as written in the files, in the order of their numbers; empty for other kinds."""
    intents: tuple[str, ...] = ()
    """For kind tags, the intents of whole sentences if they are learnt too, in the order of their numbers."""
    metrics: tuple[str, ...]
    """Names of the metrics that are scored; the first one selects settings."""
    maximum_length: int = 128
    """Tokens per row, special tokens included."""
    splits: tuple[Split, ...] = ()
    paired: bool = False
    """Whether rows are pairs of texts; inputs for prediction must then be pairs too."""
    unanswerable: bool = False
    """Whether some questions have no answer (SQuAD 2.0)."""
    script: Script = "squad"
    """For kind spans, the official script that gives the scores; it decides which format the files have, too."""
    dimensions: tuple[int, ...] = ()
    """Lengths of truncated vectors that are scored in addition to whole vectors, for kinds that train vectors."""
    skips_broken_lines: bool = False
    """Whether unreadable lines of labelled splits are skipped and reported; otherwise the first one is an error."""
    typed_labels: bool = False
    """Whether `labels` are numbers or truth values from Python, written in JSON; they are predicted as such values."""

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Label -> class number."""
        return {label: float(number) for number, label in enumerate(self.labels)}

    @cached_property
    def _by_number(self) -> dict[str, str]:
        """`plain_number` of a label -> label."""
        return {plain_number(label): label for label in self.labels}

    def known_label(self, label: str) -> str:
        """Return the task's own spelling of a label: 1 for 1.0, or the reverse; unknown labels are unchanged."""
        return label if label in self.numbers else self._by_number.get(plain_number(label), label)

    def split(self, name: str) -> Split:
        """Return the split of this name. If it does not exist, raises DataError that lists the task's splits."""
        for split in self.splits:
            if split.name == name:
                return split
        raise DataError(
            f"task {self.name} has no split {name}; it has {', '.join(split.name for split in self.splits)}"
        )

    def number(self, label: str) -> float:
        """Return a label's class number; if labels are numbers, its value. Raises ValueError with a short message."""
        if self.kind in VALUE_METRICS:
            return finite(label)
        if self.kind == "choices":
            return float(choice_number(label))
        known = self.known_label(label)
        if known not in self.numbers:
            raise ValueError(f"label {shown(label)} is not among the labels of {self.name} ({listed(self.labels)})")
        return self.numbers[known]

    def indicators(self, label: str) -> list[float]:
        """For multilabel, return 1 for each class in a JSON list of labels and 0 for the others.

        Raises ValueError with a short message.
        """
        named = {self.number(name) for name in several(label)}
        return [float(number in named) for number in range(len(self.labels))]


def several(label: str) -> list[str]:
    """Parse the labels of a multilabel row, a JSON list of texts. Raises ValueError with a short message."""
    names = list_in(label)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ValueError(f"label {shown(label)} is not a list of labels")
    return names


def choice_number(label: str) -> int:
    """Parse the number of the right choice, from 0. Raises ValueError with a short message."""
    whole = label.strip().removesuffix(".0")  # a column of floats holds whole numbers such as 1.0
    if not whole.isascii() or not whole.isdigit():
        raise ValueError(f"label {shown(label)} is not the number of a choice; the first choice has number 0")
    return int(whole)


def finite(label: str) -> float:
    """Parse a label as a number.

    Raises ValueError with a short message if it is not a finite number of at most LARGEST in absolute value.
    """
    try:
        value = math.nan if "_" in label else float(label)  # float("1_1") is 11
    except ValueError:
        value = math.nan
    if math.isfinite(value) and abs(value) > LARGEST:
        raise ValueError(f"label {shown(label)} is larger than {LARGEST:g} in absolute value, the limit for training")
    if not math.isfinite(value):
        meant = number_in(label)
        raise ValueError(f"label {shown(label)} is not a number" + (f"; write {meant:g}" if meant is not None else ""))
    return value


def plain_number(label: str) -> str:
    """Return a whole number without decimals: 1 for 1.0; other labels are unchanged."""
    match = WHOLE.fullmatch(label)
    return match[1] if match else label


def number_in(label: str) -> float | None:
    """Parse a number that may have a percent sign or decimal comma; None if it is not a number.

    "12.50%" gives 12.5, and "0,14" gives 0.14.
    """
    match = PLAIN.fullmatch(label.strip())
    value = float(match[1].replace(",", ".")) if match else math.inf
    return value if math.isfinite(value) else None


def require_few_classes(location: str, labels: Sequence[str]) -> None:
    """Raise DataError if there are more than FEW_CLASSES classes, and fewer than ROWS_PER_CLASS rows per class.

    Rows per class are counted on average. Such a column probably holds texts, ids or values.
    """
    classes = set(labels)
    if len(classes) > FEW_CLASSES and ROWS_PER_CLASS * len(classes) > len(labels):
        raise DataError(
            f"{location}: {len(classes):,} different labels, such as {shown(labels[0])}, in {len(labels):,} rows: "
            f"fewer than {ROWS_PER_CLASS} rows for each; "
            "name the column of the label with --label, or pass --kind classification if each label is a class"
        )


def require_trainable(texts: pa.Table, location: str) -> None:
    """Raise DataError unless a training split has at least two different labels."""
    labels = Counter(texts["label"].to_pylist())
    if len(labels) == 1:
        raise DataError(
            f"{location}: all {texts.num_rows} rows have the label {shown(next(iter(labels)))}; training needs at "
            "least two different labels"
        )


def noun(task: Task) -> str:
    """Return the plural noun for a task's items."""
    return {"spans": "questions", "tags": "sentences"}.get(task.kind, "rows")
