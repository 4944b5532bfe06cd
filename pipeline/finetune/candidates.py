"""Training rows of kind ranking that hold several candidates of a query: a relevant one, and irrelevant ones."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipeline.batch import TEACHER
from pipeline.errors import DataError
from pipeline.tasks.schema import ENCODED, FIRST_LENGTHS, PASSAGE_LENGTHS, QUERY
from pipeline.text.randomness import numbered_generator

DEALING = 1 << 34
"""Number of the random stream that deals irrelevant candidates to rows."""


def grouped(rows: pa.Table, most: int, seed: int) -> pa.Table:
    """Return rows with at most `most` candidates of one query: first a relevant one, then irrelevant ones.

    `rows` are pairs with the column QUERY. Each relevant and each irrelevant candidate of a query is in a row, and in
    about as many rows as the others. Queries without a relevant or an irrelevant candidate are left out; raises
    DataError if no query is left. The columns
    PASSAGE_LENGTHS and FIRST_LENGTHS have the lengths of each candidate's sequence and of its query in it.
    """
    members, counts = [], []
    for group in _groups(rows[QUERY].to_numpy(), rows["label"].to_numpy() > 0, most, numbered_generator(seed, DEALING)):
        members.append(group)
        counts.append(len(group))
    if not members:
        raise DataError(
            "no query of the sampled training rows has both a relevant candidate and an irrelevant one: raise "
            "recipe.training_rows or minutes"
        )
    return _joined(rows, np.concatenate(members), np.append(0, np.cumsum(counts)).astype(np.int32))


def _groups(queries: np.ndarray, relevant: np.ndarray, most: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the indices of the candidates of each row."""
    order = np.argsort(queries, kind="stable")
    for candidates in np.split(order, np.flatnonzero(np.diff(queries[order])) + 1):
        right = random.permutation(candidates[relevant[candidates]])
        wrong = random.permutation(candidates[~relevant[candidates]])
        if not len(right) or not len(wrong):
            continue
        size = min(most - 1, len(wrong))
        for number in range(max(len(right), -(-len(wrong) // size))):
            dealt = (number * size + np.arange(size)) % len(wrong)
            yield np.append(right[number % len(right)], wrong[dealt])


def _joined(rows: pa.Table, members: np.ndarray, bounds: np.ndarray) -> pa.Table:
    """Return a row for each group; `bounds` (groups + 1,) delimit the groups in `members`, the indices of pairs."""
    pairs = rows.take(members).combine_chunks()
    ids, firsts = pairs["ids"].combine_chunks(), pairs["first_length"].combine_chunks()
    lengths, starts = ids.value_lengths(), pa.array(bounds)
    groups = len(bounds) - 1
    columns = {
        "ids": pa.ListArray.from_arrays(ids.offsets.take(starts), ids.values),
        "first_length": pa.array(np.maximum.reduceat(firsts.to_numpy(), bounds[:-1])),
        "label": pa.array(np.ones(groups, np.float32)),
        "labels": pa.nulls(groups, ENCODED.field("labels").type),
        "row": pa.array(np.arange(groups)),
    }
    joined = pa.table(columns, schema=ENCODED)
    joined = joined.append_column(PASSAGE_LENGTHS, pa.ListArray.from_arrays(starts, lengths))
    joined = joined.append_column(FIRST_LENGTHS, pa.ListArray.from_arrays(starts, firsts))
    if TEACHER in rows.schema.names:
        outputs = pairs[TEACHER].combine_chunks()
        joined = joined.append_column(TEACHER, pa.ListArray.from_arrays(outputs.offsets.take(starts), outputs.values))
    return joined
