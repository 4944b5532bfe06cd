"""Read tables of multiple choice: each row has a context, texts to choose from, and the number of the right one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.errors import BadRow, DataError, shown
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.columns import MissingColumn
from pipeline.tables.content import SURROGATE
from pipeline.tables.readers import rows_in
from pipeline.tables.roles import CHOICE_LIST
from pipeline.tables.spans import list_in
from pipeline.tasks.files import label_text
from pipeline.tasks.schema import CHOICES
from pipeline.tasks.task import Task, choice_number


@dataclass(frozen=True, kw_only=True)
class ChoiceColumns:
    """Columns of a table of multiple choice."""

    first: str
    """Column of the context."""
    start: str | None = None
    """Column of the beginning that all choices of a row share; None: they share none."""
    choices: tuple[str, ...] = (CHOICE_LIST,)
    """One column for each choice, or a single column of lists."""
    label: str = "label"


def read_choices(location: str, columns: ChoiceColumns, bad: BadRows, *, labelled: bool = True) -> pa.Table:
    """Return the rows of a table, schema CHOICES.

    A row's id is the number of its first line; in Parquet and JSON lists, the number of the row. Both count from 1. A
    row is bad if its context, its shared beginning or a choice is blank or no text, if it has fewer than two choices,
    or if its label is not the number of one of them. `bad` skips bad rows, or raises DataError. Also raises DataError
    if a column is missing or no row is left. Without `labelled`, labels are null.
    """
    texts = [columns.first, *([columns.start] if columns.start else ()), *columns.choices]
    rows = []
    for line, values in rows_in(location, [*texts, columns.label] if labelled else texts, bad):
        try:
            rows.append(_row_of(location, line, columns, values, labelled))
        except BadRow as error:
            bad.take(error)
    bad.require_some(location, len(rows))
    if not rows:
        raise DataError(f"{location} has no rows")
    return pa.Table.from_pylist(rows, schema=CHOICES)


def _row_of(location: str, line: int, columns: ChoiceColumns, values: Sequence[Any], labelled: bool) -> dict[str, Any]:
    """Return a row of CHOICES. Raises BadRow."""
    values, where = list(values), f"{location}:{line}"
    label = label_text(location, line, columns.label, values.pop()) if labelled else None
    first = _text_in(where, columns.first, values.pop(0))
    start = _text_in(where, columns.start, values.pop(0)) if columns.start else None
    choices = [with_start(start, text) for text in _choices_in(where, columns.choices, values)]
    if label is not None:
        _require_choice(where, label, len(choices))
    return {"id": str(line), "first": first, "second": None, "label": label, "choices": choices}


def with_start(start: str | None, choice: str) -> str:
    """Return a choice after the beginning that it shares with others, divided by a space."""
    return choice if start is None else f"{start} {choice}"


def _text_in(where: str, name: str, value: Any) -> str:
    """Return a cell's text. Raises BadRow if it is blank or no text."""
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"{where}: column {name} is {shown(value)}; it must be a text", "no-text")
    return SURROGATE.sub("\ufffd", value)


def _choices_in(where: str, names: Sequence[str], values: Sequence[Any]) -> Iterator[str]:
    """Yield the choices of a row, from a column of lists or from a column for each. Raises BadRow."""
    listed = list_in(values[0]) if len(names) == 1 else list(values)
    if listed is None or len(listed) < 2:
        raise BadRow(
            f"{where}: column {names[0]} is {shown(values[0])}; it must be a list of at least two choices, or name a "
            "column for each choice with --choices",
            "no-choices",
        )
    for name, value in zip(names if len(names) > 1 else [names[0]] * len(listed), listed):
        yield _text_in(where, name, value)


def choice_cells(table: pa.Table, names: Sequence[str]) -> list[list[str]]:
    """Return the choices of each row of a table for prediction; empty if one of them is missing or blank.

    `names` are the columns, as in ChoiceColumns. Raises DataError if a column is missing or holds no texts.
    """
    if missing := [name for name in names if name not in table.column_names]:
        raise MissingColumn("input", missing[0], table.column_names, "name the columns of the choices with --choices")
    columns = [table[name].to_pylist() for name in names]
    rows = [list_in(value) or [] for value in columns[0]] if len(names) == 1 else [list(row) for row in zip(*columns)]
    for row in rows:
        if odd := [value for value in row if not isinstance(value, str | None)]:
            raise DataError(f"column {names[0]} holds {shown(odd[0])} among its choices, which is not a text")
    return [row if all(text and text.strip() for text in row) else [] for row in rows]


def _require_choice(where: str, label: str, choices: int) -> None:
    """Raise BadRow if a label is not the number of one of the choices."""
    try:
        number = choice_number(label)
    except ValueError as error:
        raise BadRow(f"{where}: {error}", "unknown-label") from None
    if number >= choices:
        raise BadRow(
            f"{where}: label {number} must be less than {choices}, the number of choices; the first one has number 0",
            "unknown-label",
        )


def choice_task(name: str) -> Task:
    """Return the task of a file of multiple choice."""
    return Task(name=name, kind="choices", metrics=("accuracy",))
