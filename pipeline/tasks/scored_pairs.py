"""Read pairs of texts with a similarity score, and triplets of an anchor, a positive and a negative text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import BadRow, ConfigError, DataError, shown
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.content import SURROGATE
from pipeline.tables.readers import Values, has_columns, rows_in
from pipeline.tables.roles import LAYOUTS, OWN
from pipeline.tasks.files import Columns, read_file, require_labels
from pipeline.tasks.task import Task

NO_CLASS = {LAYOUTS["relations"][0]: "-", LAYOUTS["relations"][2]: "-1"}
"""Layout of SNLI and MNLI, and of SNLI on the hub -> class of the pairs on which the annotators did not agree."""


@dataclass(frozen=True, kw_only=True)
class ScoredPairs:
    """Pairs of texts with similarity scores."""

    first: list[str]
    second: list[str]
    scores: np.ndarray
    """float64 (pairs,); a higher score means more similar texts."""


def pair_columns(
    location: str,
    text: str | None,
    pair: str | None,
    labels: tuple[str, ...],
    layouts: Sequence[tuple[str, str, str]] = LAYOUTS["similarity"],
) -> Columns:
    """Return the columns of a file of pairs with a score or a class.

    If no column is named, the columns are the first of `layouts` that the file has, else OWN. If at least one
    column is named, OWN gives the columns that are not named. Raises ConfigError for several labels.
    """
    if len(labels) > 1:
        raise ConfigError(
            f"label ({', '.join(labels)}) names {len(labels)} columns, but a pair has one label: name one column"
        )
    label = labels[0] if labels else None
    if (text, pair, label) == (None, None, None):
        text, pair, label = next((names for names in layouts if has_columns(location, names)), OWN)
    return Columns(first=text or OWN[0], second=pair or OWN[1], label=label or OWN[2])


def read_pairs(location: str, columns: Columns, bad: BadRows) -> ScoredPairs:
    """Read the pairs of a table.

    Raises DataError if all scores are equal, and as `read_file` and `require_labels` do.
    """
    task = Task(name=location, kind="similarity", metrics=("spearman",))
    texts = require_labels(task, location, read_file(location, columns, task.kind, bad), bad)
    scores = np.array([task.number(label) for label in texts["label"].to_pylist()])
    if (scores == scores[0]).all():
        raise DataError(f"{location}: all {len(scores):,} pairs have the score {scores[0]:g}, so nothing correlates")
    return ScoredPairs(first=texts["first"].to_pylist(), second=texts["second"].to_pylist(), scores=scores)


def read_classes(location: str, columns: Columns, bad: BadRows) -> pa.Table:
    """Return the pairs of a table with their classes, schema TEXTS. A pair of NO_CLASS is a bad row.

    Raises DataError as `read_file` does, and if no row is left.
    """
    texts = read_file(location, columns, "classification", bad)
    kept = pc.not_equal(texts["label"], NO_CLASS.get(tuple(columns.names), ""))
    for row in texts.filter(pc.invert(kept)).to_pylist():
        message = f"{location}:{row['id']}: column {columns.label} has no label ({shown(row['label'])})"
        bad.take(BadRow(f"{message}; give the row a label", "no-label"))
    texts = texts.filter(kept)
    bad.require_some(location, texts.num_rows)
    return texts


def read_triplets(location: str, names: tuple[str, str, str], bad: BadRows) -> list[tuple[str, str, str]]:
    """Read (anchor, positive, negative) of each row of a table.

    A row is bad if one of the three is blank or is not a text. Raises DataError if the table has no usable row.
    """
    triplets = []
    for line, values in triplet_rows(location, names, bad):
        wrong = next((item for item in zip(names, values) if not (isinstance(item[1], str) and item[1].strip())), None)
        if wrong:
            name, value = wrong
            bad.take(BadRow(f"{location}:{line}: column {name} is {shown(value)}; it must be a text", "no-text"))
        else:
            anchor, positive, negative = (SURROGATE.sub("\ufffd", text) for text in values)
            triplets.append((anchor, positive, negative))
    bad.require_some(location, len(triplets))
    if not triplets:
        raise DataError(f"{location} has no rows")
    return triplets


def triplet_rows(location: str, names: Sequence[str], bad: BadRows, optional: Sequence[str] = ()) -> Values:
    """Return the rows of a table; `optional` as in `rows_in`.

    Raises DataError for a missing column, with the options for columns of triplets.
    """
    return rows_in(location, names, bad, optional, "--text, --pair and --negative")
