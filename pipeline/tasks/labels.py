"""Labels as programs write them: nan for a missing number, and 1.0 for the class 1."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.tasks.task import Task, finite, plain_number

MOST_NUMERIC_CLASSES = 20
"""Labels with more distinct numbers than this are regression values (ratings and grades have fewer), unless they are
numbers of classes (`are_class_numbers`).
"""


def nan_is_missing(values: Iterable[Any]) -> bool:
    """Return whether the text nan stands for a missing number in a column: all other labels are numbers.

    Else it is a class, such as the language Min Nan (ISO 639-3).
    """
    others = {str(value).strip() for value in values if value is not None and not is_nan(value)} - {""}
    return bool(others) and _are_numbers(others)


def is_nan(value: Any) -> bool:
    """Return whether a value is the number NaN or the text nan."""
    return value.strip().lower() == "nan" if isinstance(value, str) else isinstance(value, float) and math.isnan(value)


def _are_numbers(labels: Iterable[str]) -> bool:
    """Return whether all labels are finite numbers."""
    try:
        return all(math.isfinite(finite(label)) for label in labels)
    except ValueError:
        return False


def class_names(labels: Iterable[str]) -> dict[str, str]:
    """Return label -> name of its class. Labels such as 1 and 1.0 have one class, which is named 1."""
    spellings: dict[str, set[str]] = {}
    for label in labels:
        spellings.setdefault(plain_number(label), set()).add(label)
    return {label: plain if len(written) > 1 else label for plain, written in spellings.items() for label in written}


def are_class_numbers(values: set[float]) -> bool:
    """Return whether numbers are those from 0 to K - 1, as data sets number their K classes."""
    return values == set(range(len(values)))


def numbers_in_words(task: Task, rows: pa.Table) -> str:
    """Return a line for a task whose kind was inferred from many whole numbers: what they are taken as, and how to
    choose; "" for other labels. `rows` are the encoded training rows.
    """
    if task.kind == "regression" and all(value == int(value) for value in rows["label"].to_pylist()):
        return (
            f"warning: the labels are {pc.count_distinct(rows['label']).as_py():,} whole numbers, which are taken as "
            "values: if they are classes, pass --kind classification"
        )
    if task.kind == "classification" and len(task.labels) > MOST_NUMERIC_CLASSES and _are_numbers(task.labels):
        return (
            f"the labels are the whole numbers from 0 to {len(task.labels) - 1:,}, which are taken as classes: if they "
            "are values, pass --kind regression"
        )
    return ""


def default_labels(outputs: int) -> tuple[str, ...]:
    """Return LABEL_0, LABEL_1, …, the default labels of transformers."""
    return tuple(f"LABEL_{number}" for number in range(outputs))


def with_number_labels(task: Task, labels: set[str]) -> Task:
    """Return the task, with labels that fit `labels`, the labels of the data.

    If the data has numbers as labels, and the task has the default labels (LABEL_0, …), the task gets the labels "0",
    "1", … Otherwise, return the task unchanged.
    """
    labels = set(map(plain_number, labels))
    numbers = tuple(str(number) for number in range(len(task.labels)))
    has_number_labels = labels & set(numbers) and not labels & set(task.labels)
    return replace(task, labels=numbers) if has_number_labels and task.labels == default_labels(len(numbers)) else task
