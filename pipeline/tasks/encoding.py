"""Texts to ids: [CLS] A [SEP], or [CLS] A [SEP] B [SEP], cut to a length as `tokenizers` cuts.

N rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.tasks.schema import ENCODED
from pipeline.tasks.task import Task
from pipeline.text.wordpiece import WordPiece, gathered

ROWS_AT_ONCE = 8_192
"""So that the ids of large files never stand in memory twice."""
SPECIALS = {False: 2, True: 3}
"""Special tokens of a row of one text, and of a pair."""


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Rows as ids."""

    rows: pa.Table
    """Schema ENCODED, in the order of the texts."""
    cut: int
    """How many of them lost tokens to the length."""


def encode(task: Task, texts: pa.Table, wordpiece: WordPiece, maximum_length: int | None = None) -> Encoded:
    """The rows of a table of TEXTS as ids of at most `maximum_length` tokens (None: the task's), special tokens in a text being text.

    Raises ValueError for a length below 3, and for a label that is none of the task's.
    """
    length = task.maximum_length if maximum_length is None else maximum_length
    if length < SPECIALS[True]:
        raise ValueError(f"maximum_length ({length}) must be at least {SPECIALS[True]}")
    parts = [encode_part(task, texts.slice(start, ROWS_AT_ONCE), start, wordpiece, length) for start in range(0, texts.num_rows, ROWS_AT_ONCE)]
    return Encoded(rows=pa.concat_tables([ENCODED.empty_table(), *(part.rows for part in parts)]), cut=sum(part.cut for part in parts))


def encode_part(task: Task, texts: pa.Table, start: int, wordpiece: WordPiece, length: int) -> Encoded:
    """As encode; `start` is the place of the first of these texts."""
    second = texts["second"].to_pylist()
    paired = np.array([text is not None for text in second])
    ids, bounds = wordpiece.encode([*texts["first"].to_pylist(), *(text or "" for text in second)])
    lengths = np.diff(bounds).reshape(2, -1)
    kept_a, kept_b = kept_lengths(lengths[0], lengths[1], length - np.where(paired, SPECIALS[True], SPECIALS[False]))
    ones, vocabulary = np.ones_like(kept_a), wordpiece.vocabulary
    # five runs a row: [CLS], A, [SEP], B, [SEP]; those two entries stand behind the ids
    source = np.append(ids, np.array([vocabulary.cls_id, vocabulary.sep_id], np.int32))
    cls, sep = ones * len(ids), ones * (len(ids) + 1)
    starts = np.stack((cls, bounds[: len(ones)], sep, bounds[len(ones) : -1], sep), axis=1)
    counts = np.stack((ones, kept_a, ones, kept_b, paired.astype(np.int64)), axis=1)
    runs = np.stack((starts, starts + counts), axis=2).ravel()
    tokens = gather_runs(source, runs)
    offsets = np.append(0, np.cumsum(counts.sum(axis=1))).astype(np.int32)
    labels = texts["label"].to_pylist()
    columns = [
        pa.ListArray.from_arrays(offsets, tokens),
        pa.array((kept_a + 2).astype(np.int32)),
        pa.array(of_kind(task.number, task.kind != "multilabel", labels), pa.float32()),
        pa.array(of_kind(task.indicators, task.kind == "multilabel", labels), ENCODED.field("labels").type),
        pa.array(np.arange(start, start + len(ones))),
    ]
    cut = np.count_nonzero((kept_a < lengths[0]) | (kept_b < lengths[1]))
    return Encoded(rows=pa.table(columns, schema=ENCODED), cut=int(cut))


def of_kind(understand: Callable[[str], Any], right: bool, labels: Sequence[str | None]) -> list[Any]:
    """What the labels mean where this is the right way to understand them for the task's kind, else None for each."""
    return [understand(label) if right and label is not None else None for label in labels]


def gather_runs(source: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """The entries of `source` in each run one after the other; `runs` is start, end, start, end, and so on."""
    return gathered(source, runs, np.arange(0, len(runs), 2))[0]


def kept_lengths(first: np.ndarray, second: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens stay of texts so long where both together have `room`, each int64 (N,): the longer loses first, and what is odd stays of it.

    Source: tokenizers, truncate_encodings with LongestFirst; of two that are cut to about half, the first stays the longer only if it was.
    """
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    longer = np.where(shorter > room, shorter, np.maximum(shorter, room - shorter).clip(max=longer))
    halved = shorter + longer > room
    shorter, longer = np.where(halved, room // 2, shorter), np.where(halved, room - room // 2, longer)
    return np.where(first > second, longer, shorter), np.where(first > second, shorter, longer)
