"""Read tables of matching texts: each row has a text, its match, and perhaps negative texts that do not match."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.config.similarity import LOSSES, Loss
from pipeline.errors import BadRow, ConfigError, DataError, shown
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.content import SURROGATE
from pipeline.tables.readers import columns_among, has_columns
from pipeline.tables.roles import MATCHING, NEGATIVES, OWN
from pipeline.tables.spans import list_in
from pipeline.tasks.schema import MATCHES
from pipeline.tasks.scored_pairs import triplet_rows
from pipeline.tasks.task import Task

OF_NEGATIVES, OF_ALL = "triplet_accuracy", "match_accuracy"
"""Metrics: of the match against the row's negative texts, and of the match against the matches of all rows."""


@dataclass(frozen=True, kw_only=True)
class MatchColumns:
    """Columns of a file of matching texts."""

    first: str
    second: str
    negatives: tuple[str, ...] = ()


def match_columns(location: str, text: str | None, pair: str | None, negatives: tuple[str, ...]) -> MatchColumns:
    """Return the columns of a file of matching texts.

    If neither text nor pair is named, they are the first of MATCHING that the file has, else those of OWN. If one is
    named, OWN gives the other. If no negatives are named, they are those of NEGATIVES that the file has.
    """
    first, second, _ = OWN
    if text is None and pair is None:
        first, second = next((names for names in MATCHING if has_columns(location, names)), (first, second))
    found = negatives or columns_among(NEGATIVES, location)
    return MatchColumns(first=text or first, second=pair or second, negatives=found)


def require_negatives(location: str, columns: MatchColumns, loss: Loss) -> None:
    """Raise ConfigError if no column has negative texts, which the loss needs."""
    if not columns.negatives:
        raise ConfigError(
            f"similarity.loss ({loss}) compares texts with negative texts, but {location} has no column "
            f"{NEGATIVES[0]}: name the column with --negative, or set similarity.loss contrastive"
        )


def read_matches(location: str, columns: MatchColumns, bad: BadRows, *, loss: Loss) -> pa.Table:
    """Return the rows of a table, schema MATCHES; a negative text that equals one of the row's texts is left out.

    A row is bad if its text or match is blank or is not a text, if a negative is neither a text nor a list of texts,
    or if it has no negative text although the loss needs one. Raises DataError if the table has no usable row.
    """
    names, rows = (columns.first, columns.second, *columns.negatives), []
    for line, values in triplet_rows(location, names, bad, columns.negatives):
        try:
            rows.append(_row_of(f"{location}:{line}", str(line), names, values, loss))
        except BadRow as error:
            bad.take(error)
    bad.require_some(location, len(rows))
    if not rows:
        raise DataError(f"{location} has no rows")
    return pa.Table.from_pylist(rows, schema=MATCHES)


def _row_of(where: str, line: str, names: Sequence[str], values: Sequence[Any], loss: Loss) -> dict[str, Any]:
    """Return a row of MATCHES. Raises BadRow; `where` is its file and line."""
    for name, value in zip(names[:2], values):
        if not (isinstance(value, str) and value.strip()):
            raise BadRow(f"{where}: column {name} is {shown(value)}; it must be a text", "no-text")
    first, second = (SURROGATE.sub("\ufffd", text) for text in values[:2])
    negatives = [text for name, value in zip(names[2:], values[2:]) for text in _negatives(where, name, value)]
    negatives = [text for text in dict.fromkeys(negatives) if text.strip() not in (first.strip(), second.strip())]
    if LOSSES[loss].needs_negatives and not negatives:
        raise BadRow(
            f"{where}: column {names[2]} has no negative text besides the row's own texts, which similarity.loss "
            f"{loss} needs",
            "no-negative",
        )
    return {"id": line, "first": first, "second": second, "label": None, "negatives": negatives}


def _negatives(where: str, name: str, value: Any) -> Iterator[str]:
    """Yield the texts of a value: a text, a list of texts or nothing. Blank texts are left out. Raises BadRow."""
    for text in [value] if (values := list_in(value)) is None else values:
        if not isinstance(text, str | None):
            raise BadRow(f"{where}: column {name} is {shown(value)}; it must be a text or a list of texts", "no-text")
        if text and text.strip():
            yield SURROGATE.sub("\ufffd", text)


def with_negatives(items: pa.Table, most: int) -> tuple[pa.Table, tuple[str, ...]]:
    """Return rows of MATCHES with the first `most` negative texts of each row, and a line if some were left out."""
    negatives = items["negatives"].to_pylist()
    if not (longer := [len(texts) - most for texts in negatives if len(texts) > most]):
        return items, ()
    kept = pa.array([texts[:most] for texts in negatives], MATCHES.field("negatives").type)
    left_out = (
        f"{sum(longer):,} negative texts left out of {len(longer):,} rows that have more than {most:,} "
        "(similarity.negatives)"
    )
    return items.set_column(MATCHES.get_field_index("negatives"), MATCHES.field("negatives"), kept), (left_out,)


def matching_task(name: str, train: pa.Table) -> Task:
    """Return the task of a training file with schema MATCHES. Raises DataError if all rows have the same match."""
    if len(set(train["second"].to_pylist())) == 1:
        raise DataError(f"{name}: all {train.num_rows:,} rows have the same match; give rows with different texts")
    metrics = (OF_NEGATIVES, OF_ALL) if any(train["negatives"].to_pylist()) else (OF_ALL,)
    return Task(name=name, kind="matching", metrics=metrics, paired=True)


def require_scored_negatives(task: Task, name: str, items: pa.Table, remedy: str) -> None:
    """Raise DataError if the task scores negative texts, but the rows of the split `name`, schema MATCHES, have none.

    `remedy`: end of the message.
    """
    if OF_NEGATIVES in task.metrics and not any(items["negatives"].to_pylist()):
        raise DataError(
            f"none of the {items.num_rows:,} rows of {name} has a negative text, but training rows have some, so "
            f"{OF_NEGATIVES} cannot be computed: {remedy}"
        )
