"""Read the user's own labelled files as tables of TEXTS, and infer the task from their labels."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa

from pipeline.config.task_kind import VALUE_METRICS, Kind
from pipeline.errors import BadRow, ConfigError, DataError, listed, shown
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.readers import rows_in
from pipeline.tables.spans import list_in, require_no_spans
from pipeline.tasks.labels import MOST_NUMERIC_CLASSES, are_class_numbers, class_names, is_nan, nan_is_missing
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.tables import Row, texts_table
from pipeline.tasks.task import (
    ROWS_PER_CLASS,
    Task,
    finite,
    number_in,
    require_few_classes,
    require_trainable,
    several,
)

LONGEST_NAME = 150
"""Maximum bytes of a task's name. Names of trial folders add seed and digest to the name; file systems allow 255."""
MOST_ODD = 0.1
"""A column counts as regression only if at most this share of its labels are not numbers."""
BETWEEN_LABELS = ";"
"""Separator of the labels of a multilabel task within one cell."""
MULTILABEL_METRICS = ("micro_f1", "macro_f1", "subset_accuracy")
TRUTHS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
"""Accepted values of 0/1 columns, in lower case."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Column names of a file; None for a column that the file lacks."""

    first: str
    second: str | None = None
    label: str | None = None
    """For a multilabel task, a column of lists, or of texts with labels separated by semicolons."""
    labels: tuple[str, ...] = ()
    """Alternative to `label` for a multilabel task: one column per label, named as the label.

    These columns hold 0 and 1, or false and true.
    """

    def __post_init__(self) -> None:
        if self.label is not None and self.labels:
            raise ConfigError(
                f"columns.label ({self.label}) and columns.labels ({listed(self.labels)}) are both given: leave "
                "columns.label or columns.labels out"
            )
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"label ({listed(self.labels)}) names a column twice: give each column of labels once")

    @property
    def names(self) -> list[str]:
        return [name for name in (self.first, self.second, self.label, *self.labels) if name is not None]


def read_file(location: str, columns: Columns, kind: Kind | None = None, bad: BadRows | None = None) -> pa.Table:
    """Return the rows of a file or URL, schema TEXTS.

    A row's id is the number of its first line; in Parquet and JSON lists, the id is the number of the row. Both count
    from 1.

    If `kind` is None, the task is multilabel if at least one label is a list or a JSON list. In a multilabel task, a
    label that is not a list is split at semicolons, and an empty text means no label.

    The file name gives the format: .csv, .tsv, .jsonl, .ndjson, .json or .parquet, optionally compressed. Quotes
    enclose fields in CSV and are plain characters in TSV.

    Raises ConfigError if columns.labels are set and `kind` is a kind that is not multilabel. Raises DataError for
    another format, a missing column and broken quotes. A row is bad if it has broken JSON, a wrong number of columns,
    an empty text, or a missing or NaN label. `bad` skips bad rows, or raises DataError with file and line.
    """
    bad = bad or BadRows()
    if columns.labels and kind not in (None, "multilabel"):
        raise ConfigError(
            f"columns.labels ({listed(columns.labels)}) make a multilabel task, but kind is {kind}: leave kind "
            "out, or name a single label"
        )
    values = list(rows_in(location, columns.names, bad))
    labels = {} if columns.label is None else {line: row[columns.names.index(columns.label)] for line, row in values}
    for line, label in labels.items():
        require_no_spans(f"{location}:{line}", str(columns.label), label)
    lists = kind == "multilabel" or kind is None and any(list_in(label) is not None for label in labels.values())
    if kind in VALUE_METRICS or not lists and nan_is_missing(labels.values()):
        values = [
            (
                line,
                [
                    math.nan if name == columns.label and is_nan(value) else value
                    for name, value in zip(columns.names, row)
                ],
            )
            for line, row in values
        ]
    rows = list(_usable_rows(location, values, columns, lists, bad))
    bad.require_some(location, len(rows))
    return texts_table(location, rows)


def _usable_rows(
    location: str, values: Iterable[tuple[int, Sequence[Any]]], columns: Columns, lists: bool, bad: BadRows
) -> Iterator[Row]:
    """Yield rows of TEXTS; `bad` skips or raises bad rows."""
    for line, row in values:
        try:
            usable = _row_of(location, line, columns, dict(zip(columns.names, row)), lists)
        except BadRow as error:
            bad.take(error)
        else:
            yield usable


def own_task(
    location: str, texts: pa.Table, kind: Kind | None = None, labels: tuple[str, ...] = (), *, skip: bool = False
) -> Task:
    """Return the task that a training file's labels define. If `kind` is None, the labels decide the kind.

    If a multilabel task has one column per label, `labels` are the names of these columns, in order. Otherwise `labels`
    is empty, and the task has the labels of the rows, sorted (numerically if all are numbers).

    Raises DataError if all labels are the same, or if there are too few rows per inferred class. Also raises DataError
    for a label that is not a number (kinds in VALUE_METRICS) or not a list (kind multilabel), unless `skip` ignores
    such rows.
    """
    requested, kind = kind, kind or _infer_kind(location, texts, skip)
    if kind == "classification":
        texts = _with_labels(texts, class_names(texts["label"].to_pylist()).__getitem__)
    require_trainable(texts, location)
    name = stem(location)
    if kind in VALUE_METRICS:
        task = Task(name=name, kind=kind, metrics=VALUE_METRICS[kind])
        require_labels(task, location, texts, BadRows(skip=skip))
        return task
    if kind == "multilabel":
        known = labels or _sorted_labels(list(class_names(_named_labels(location, texts, skip)).values()))
        return Task(name=name, kind=kind, labels=known, metrics=MULTILABEL_METRICS)
    if requested is None:
        require_few_classes(location, texts["label"].to_pylist())
    return Task(
        name=name, kind=kind, labels=_sorted_labels(texts["label"].to_pylist()), metrics=("accuracy", "macro_f1")
    )


def stem(location: str) -> str:
    """Return a file's name up to its first dot, truncated to LONGEST_NAME bytes."""
    return location.rsplit("/", 1)[-1].split(".")[0].encode()[:LONGEST_NAME].decode(errors="ignore")


def _with_labels(texts: pa.Table, renamed: Callable[[str], str]) -> pa.Table:
    """Return a table of TEXTS with another spelling of its labels; unchanged if no label changes."""
    before = texts["label"].to_pylist()
    after = [renamed(label) for label in before]
    index = TEXTS.get_field_index("label")
    return texts if after == before else texts.set_column(index, TEXTS.field(index), pa.array(after, pa.string()))


def _infer_kind(location: str, texts: pa.Table, skip: bool = False) -> Kind:
    """Infer the kind of task from its labels.

    The task is multilabel if all labels are lists. It is a regression if the labels are numbers, and if these include
    fractions or more than MOST_NUMERIC_CLASSES different values. Otherwise the task is a classification. It is a
    classification, too, if the numbers are those of `are_class_numbers`, with at least ROWS_PER_CLASS rows for each.

    The kind is still regression if a share of up to MOST_ODD of the labels are not numbers. The first such label raises
    DataError, unless `skip` ignores such labels. Without this rule, a single typo would turn each value into a class.
    Also raises DataError as `_require_plain_numbers` does.
    """
    labels = texts["label"].to_pylist()
    if all(list_in(label) is not None for label in set(labels)):
        return "multilabel"
    parsed = {label: _numbers([label]) for label in set(labels)}
    not_numbers = [index for index, label in enumerate(labels) if parsed[label] is None]
    values = {number for numbers in parsed.values() if numbers is not None for number in numbers}
    numbered = not not_numbers and are_class_numbers(values) and ROWS_PER_CLASS * len(values) <= len(labels)
    if (
        numbered
        or len(not_numbers) > MOST_ODD * len(labels)
        or not (len(values) > MOST_NUMERIC_CLASSES or any(value != int(value) for value in values))
    ):
        _require_plain_numbers(location, set(labels))
        return "classification"
    if not_numbers and not skip:
        line, label = texts["id"][not_numbers[0]].as_py(), labels[not_numbers[0]]
        raise DataError(
            f"{location}:{line}: label {shown(label)} is not a number, but {len(labels) - len(not_numbers):,} other "
            "labels are; correct it, or pass --kind classification if each label is a class"
        )
    return "regression"


def _require_plain_numbers(location: str, labels: set[str]) -> None:
    """Raise DataError if the labels would make a regression, but some have a percent sign or a decimal comma."""
    values = {label: number_in(label) for label in labels}
    not_plain = sorted(label for label in labels if _numbers([label]) is None)
    if not not_plain or None in values.values():
        return
    if len(values) > MOST_NUMERIC_CLASSES or any(value != int(value) for value in values.values() if value is not None):
        raise DataError(
            f"{location}: labels such as {shown(not_plain[0])} are not written as numbers; write "
            f"{values[not_plain[0]]:g} for a regression, "
            "or pass --kind classification if each label is a class"
        )


def _named_labels(location: str, texts: pa.Table, skip: bool) -> list[str]:
    """Return all labels in the rows of a multilabel task.

    Raises DataError at the first row whose label is not a list, unless `skip` ignores such rows.
    """
    rows = zip(texts["id"].to_pylist(), texts["label"].to_pylist())
    return list(
        chain.from_iterable(
            _parse_label(location, line, several, label)
            for line, label in rows
            if not skip or _is_valid_label(several, label)
        )
    )


def _sorted_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct labels, sorted numerically if all are numbers, else alphabetically."""
    labels = sorted(set(labels))
    values = _numbers(labels)
    return tuple(labels if values is None else (label for _, label in sorted(zip(values, labels))))


def _numbers(labels: Sequence[str] | set[str]) -> list[float] | None:
    """Return the labels as numbers, or None for the whole list if any label is not a number."""
    try:
        return [finite(label) for label in labels]
    except ValueError:
        return None


def require_labels(task: Task, location: str, texts: pa.Table, bad: BadRows | None = None) -> pa.Table:
    """Return those rows of `texts` whose labels the task knows, in the task's spelling; `texts` is a result of
    `read_file`.

    Raises DataError if there are several rows and all their labels are unknown, or if no row is left. Also raises
    DataError at the first row with an unknown label, unless `bad` skips such rows.
    """
    parse, labels, bad = (
        task.indicators if task.kind == "multilabel" else task.number,
        texts["label"].to_pylist(),
        bad or BadRows(),
    )
    if task.labels and len(labels) > 1 and not any(_is_valid_label(parse, label) for label in labels):
        raise DataError(
            f"{location}: none of its {len(labels):,} rows has a label of {task.name} ({listed(task.labels)}); the "
            f"first label is {shown(labels[0])}: "
            "is it another task's file, or are the columns of text and label swapped?"
        )
    kept = []
    for line, label in zip(texts["id"].to_pylist(), labels):
        try:
            _parse_label(location, line, parse, label)
        except BadRow as error:
            bad.take(error)
            kept.append(False)
        else:
            kept.append(True)
    bad.require_some(location, sum(kept))
    texts = texts if all(kept) else texts.filter(pa.array(kept))
    if task.kind == "multilabel":
        return _with_labels(texts, lambda label: labels_text(map(task.known_label, several(label))))
    return _with_labels(texts, task.known_label) if task.labels else texts


def _is_valid_label(parse: Callable[[str], Any], label: str) -> bool:
    """Return whether `parse` accepts a label, that is, does not raise ValueError."""
    try:
        parse(label)
    except ValueError:
        return False
    return True


def _parse_label(location: str, line: str, parse: Callable[[str], Any], label: str) -> Any:
    """Parse a label. Raises BadRow, with file and line, if `parse` raises ValueError."""
    try:
        return parse(label)
    except ValueError as error:
        raise BadRow(f"{location}:{line}: {error}", "unknown-label") from None


def _row_of(
    location: str, line: int, columns: Columns, by_name: dict[str, Any], lists: bool
) -> tuple[str, str, str | None, str | None]:
    """Return the selected columns' values as a row of TEXTS.

    `lists`: whether the task is multilabel. Raises BadRow for a missing or empty text, and as `_row_label` does.
    """
    for name in (columns.first, columns.second):
        if name is None:
            continue
        text = by_name[name]
        if text is not None and not isinstance(text, str):
            raise BadRow(f"{location}:{line}: column {name} is not text but {shown(text)}", "no-text")
        if not text or not text.strip():
            raise BadRow(f"{location}:{line}: column {name} is empty", "empty-text")
    return (
        str(line),
        by_name[columns.first],
        by_name.get(columns.second or ""),
        _row_label(location, line, columns, by_name, lists),
    )


def _row_label(location: str, line: int, columns: Columns, by_name: dict[str, Any], lists: bool) -> str | None:
    """Return a row's label as stored in TEXTS; None if no column has labels. Raises BadRow for an invalid label."""
    if columns.labels:
        return labels_text(name for name in columns.labels if _parse_truth_value(location, line, name, by_name[name]))
    if columns.label is None:
        return None
    value = by_name[columns.label]
    if not lists:
        return label_text(location, line, columns.label, value)
    labels = list_in(value)
    if labels is None and isinstance(value, str):
        labels = [label for label in value.split(BETWEEN_LABELS) if label.strip()]
    return labels_text(
        label_text(location, line, columns.label, label) for label in ([value] if labels is None else labels)
    )


def labels_text(labels: Iterable[str]) -> str:
    """Return labels as a JSON list, sorted and without duplicates, so that equal sets of labels are equal texts."""
    return json.dumps(sorted(set(labels)), ensure_ascii=False)


def _parse_truth_value(location: str, line: int, column: str, value: Any) -> bool:
    """Return whether a row has the label that a 0/1 column stands for. Raises BadRow for a value not in TRUTHS."""
    truth = TRUTHS.get(str(value).strip().lower())
    if truth is None:
        raise BadRow(
            f"{location}:{line}: column {column} is {shown('' if value is None else value)}; a label column holds 0 "
            "or 1, or false or true",
            "no-label",
        )
    return truth


def label_text(location: str, line: int, column: str, value: Any) -> str:
    """Return a label as text; numbers and truth values are written as in JSON.

    Raises BadRow if the label is missing, the number NaN, or not a text, number or truth value.
    """
    if isinstance(value, Decimal):  # as Parquet has them
        value = int(value) if value.is_finite() and value == int(value) else float(value)
    if (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    ):
        raise BadRow(
            f"{location}:{line}: column {column} has no label ({shown('' if value is None else value)}); give the row "
            "a label",
            "no-label",
        )
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str):
        return value.strip()
    raise BadRow(
        f"{location}:{line}: column {column} is not a label but {shown(value)}; a label is one text, number or truth "
        "value, or, for kind multilabel, a list of them",
        "no-label",
    )
