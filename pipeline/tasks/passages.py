"""Whole texts as rows: the passages of a text are consecutive sequences of one row, and the row has one answer."""

import numpy as np
import pyarrow as pa

from pipeline.tasks.schema import ENCODED, PASSAGE_LENGTHS


def whole_texts(passages: pa.Table, most: int) -> tuple[pa.Table, int, int]:
    """Return one row per text, with at most its first `most` passages; and how many texts and passages were cut off.

    `passages` is a table with schema ENCODED, in which the rows of a text are adjacent. The result has the column
    PASSAGE_LENGTHS in addition. The first count is that of texts with more than `most` passages, and the second that of
    their passages that were left out.
    """
    text = passages["row"].to_numpy()
    starts = np.flatnonzero(np.diff(text, prepend=-1))  # index of each text's first passage
    counts = np.diff(starts, append=len(text))
    kept = passages.filter(pa.array(np.arange(len(text)) - np.repeat(starts, counts) < most))
    kept_counts = np.minimum(counts, most)
    bounds = np.append(0, np.cumsum(kept_counts))
    ids = kept["ids"].combine_chunks()
    token_bounds = np.append(0, np.cumsum(ids.value_lengths().to_numpy()))
    whole = kept.take(bounds[:-1])
    columns = {name: whole[name] for name in ENCODED.names} | {
        "ids": pa.ListArray.from_arrays(token_bounds[bounds].astype(np.int32), ids.flatten()),
        "first_length": pa.array(_longest(kept["first_length"].to_numpy(), bounds)),
    }
    lengths = pa.ListArray.from_arrays(bounds.astype(np.int32), ids.value_lengths())
    rows = pa.table(columns, schema=ENCODED).append_column(PASSAGE_LENGTHS, lengths)
    return rows, int(np.count_nonzero(counts > most)), int((counts - kept_counts).sum())


def _longest(lengths: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return the largest length of each text, int32 (texts,); `bounds` (texts + 1,) delimit the texts' passages."""
    return np.maximum.reduceat(lengths, bounds[:-1]).astype(np.int32) if len(lengths) else lengths
