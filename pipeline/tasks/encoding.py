"""Encode texts and pairs of texts as rows of ids; long texts are truncated as in `tokenizers`, or split with overlap.

A row is [CLS] A [SEP], or for a pair [CLS] A [SEP] B [SEP] (RoBERTa: two [SEP] after A). Shapes: N texts or pairs, R
rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.errors import ConfigError
from pipeline.tasks.parts import parts
from pipeline.tasks.schema import ENCODED
from pipeline.tasks.task import Task
from pipeline.text.cached_tokenizer import CachedTokenizer, concatenate_runs
from pipeline.text.template import SPECIALS_OF_ONE, Template

ROWS_AT_ONCE = 8_192
"""Texts per batch. Batches are used so that the ids of a large file are never in memory twice."""


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """Encoded rows, with the numbers of truncated and of split texts."""

    rows: pa.Table
    """Schema ENCODED, in the order of the texts; rows of the same text are adjacent."""
    cut: int
    """Number of truncated texts."""
    passages: int = 0
    """Number of texts that were split into several rows."""


def encode(
    task: Task,
    texts: pa.Table,
    tokenizer: CachedTokenizer,
    maximum_length: int | None = None,
    passages: int | None = None,
) -> Encoded:
    """Encode a table of TEXTS as rows of at most `maximum_length` tokens.

    If `maximum_length` is None, the task's maximum length is used.

    If `passages` is None, longer texts are truncated. Otherwise `passages` is an overlap in tokens: a longer text
    becomes several overlapping rows, all with the text's index and label. In a pair, only the second text is split.
    The first text keeps at most half of the room, or more if the second text is short.

    Special tokens that a text spells out are encoded as plain text. Raises ValueError if the length is below the number
    of special tokens of a pair, and for an unknown label. Raises ConfigError if the overlap leaves no room for new
    tokens.
    """
    length = task.maximum_length if maximum_length is None else maximum_length
    template = tokenizer.vocabulary.template
    if length < template.specials_of_pair:
        raise ValueError(f"maximum_length ({length}) must be at least {template.specials_of_pair}")
    _require_room(length, passages, texts["second"].null_count < texts.num_rows, template)
    done = [
        _encode_part(task, texts.slice(start, ROWS_AT_ONCE), start, tokenizer, length, passages)
        for start in range(0, texts.num_rows, ROWS_AT_ONCE)
    ]
    rows = pa.concat_tables([ENCODED.empty_table(), *(part.rows for part in done)])
    return Encoded(rows=rows, cut=sum(part.cut for part in done), passages=sum(part.passages for part in done))


def _require_room(length: int, passages: int | None, paired: bool, template: Template) -> None:
    """Raise ConfigError if the overlap `passages` is negative, or leaves no room for new tokens in a passage."""
    specials = template.specials_of_pair if paired else SPECIALS_OF_ONE
    room = length - specials - (length - specials) // 2 if paired else length - specials
    if passages is not None and not 0 <= passages < room:
        other_tokens = f"{specials} special tokens and a first text" if paired else f"{specials} special tokens"
        raise ConfigError(
            f"cutting.stride ({passages}) must be at least 0 and less than {room}, the tokens of a passage that fit in "
            f"cutting.maximum_length ({length}) with {other_tokens}: "
            "lower the stride or raise the length"
        )


def _encode_part(
    task: Task, texts: pa.Table, start: int, tokenizer: CachedTokenizer, length: int, passages: int | None
) -> Encoded:
    """Encode a slice of the texts, as `encode` does; `start` is the index of the slice's first text."""
    second = texts["second"].to_pylist()
    paired = np.array([text is not None for text in second])
    ids, bounds = tokenizer.encode([*texts["first"].to_pylist(), *(text or "" for text in second)])
    template = tokenizer.vocabulary.template
    lengths, room = (
        np.diff(bounds).reshape(2, -1),
        length - np.where(paired, template.specials_of_pair, SPECIALS_OF_ONE),
    )
    text, start_a, end_a, start_b, end_b = (
        _truncated_rows(lengths, room) if passages is None else _passage_rows(lengths, room, paired, passages)
    )
    ones, vocabulary = np.ones_like(text), tokenizer.vocabulary
    # A row has five runs: [CLS], A, the one or two [SEP] after A, B, [SEP]. The ids of [CLS] and [SEP] are appended to
    # `ids`, so that all runs are ranges of one array.
    separators = [vocabulary.sep_id] * template.pair_separators
    source = np.append(ids, np.array([vocabulary.cls_id, *separators], np.int32))
    after_a = np.where(paired[text], template.pair_separators, 1)
    cls, sep = ones * len(ids), ones * (len(ids) + 1)
    starts = np.stack((cls, bounds[text] + start_a, sep, bounds[text + len(paired)] + start_b, sep), axis=1)
    counts = np.stack((ones, end_a - start_a, after_a, end_b - start_b, paired[text].astype(np.int64)), axis=1)
    runs = np.stack((starts, starts + counts), axis=2).ravel()
    tokens = _gather_runs(source, runs)
    offsets = np.append(0, np.cumsum(counts.sum(axis=1))).astype(np.int32)
    labels = texts["label"].take(text).to_pylist()
    columns = [
        pa.ListArray.from_arrays(offsets, tokens),
        pa.array((end_a - start_a + 1 + after_a).astype(np.int32)),
        pa.array(_parsed_labels(task.number, task.kind != "multilabel", labels), pa.float32()),
        pa.array(_parsed_labels(task.indicators, task.kind == "multilabel", labels), ENCODED.field("labels").type),
        pa.array(start + text),
    ]
    # The last passage of a text ends where the text ends. So a text whose last row ends earlier was truncated.
    last = np.append(np.flatnonzero(np.diff(text)), len(text) - 1)
    cut = np.count_nonzero((end_a[last] < lengths[0]) | (end_b[last] < lengths[1]))
    return Encoded(
        rows=pa.table(columns, schema=ENCODED), cut=int(cut), passages=int(np.count_nonzero(np.bincount(text) > 1))
    )


def _truncated_rows(lengths: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Return one row per text, int64 (5, R): index of the text, start and end in A, start and end in B.

    `lengths` (2, N) and `room` (N,) are in tokens.
    """
    nothing = np.zeros_like(room)
    kept_a, kept_b = _kept_lengths(lengths[0], lengths[1], room)
    return np.stack((np.arange(len(room)), nothing, kept_a, nothing, kept_b))


def _passage_rows(lengths: np.ndarray, room: np.ndarray, paired: np.ndarray, stride: int) -> np.ndarray:
    """Return the passages of all texts as rows, in the format of `_truncated_rows`.

    `paired` (N,) tells which rows of TEXTS are pairs. In a pair, only B is split, and A keeps at most half of the room
    unless B is short.
    """
    rows: list[tuple[int, int, int, int, int]] = []
    for index, (a, b, space, pair) in enumerate(zip(*lengths.tolist(), room.tolist(), paired.tolist())):
        kept = min(a, max(space // 2, space - b))
        if pair:
            rows += [
                (index, 0, kept, start, end)
                for start, end in ([(0, b)] if kept + b <= space else parts(b, space - kept, stride))
            ]
        else:
            rows += [(index, start, end, 0, 0) for start, end in parts(a, space, stride)]
    return np.array(rows, np.int64).T


def mean_logits(rows: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Return the mean logits over the rows of each text, float64 (N, …), in the order of the texts.

    `rows` (R,) are the indices of the rows' texts in the table of TEXTS; `logits` are (R, …).
    """
    indices, text = np.unique(rows, return_inverse=True)
    sums = np.zeros((len(indices), *logits.shape[1:]))
    np.add.at(sums, text, logits)
    return sums / np.bincount(text).reshape(-1, *(1,) * (logits.ndim - 1))


def _parsed_labels(parse: Callable[[str], Any], fits_kind: bool, labels: Sequence[str | None]) -> list[Any]:
    """Parse each label if `parse` fits the task's kind; otherwise return None for each."""
    return [parse(label) if fits_kind and label is not None else None for label in labels]


def _gather_runs(source: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """Concatenate the entries of `source` in each run; `runs` is start, end, start, end, and so on."""
    return concatenate_runs(source, runs, np.arange(0, len(runs), 2))[0]


def _kept_lengths(first: np.ndarray, second: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many tokens to keep of the first and of the second text of each pair, two int64 (N,).

    Both texts together keep at most `room` (N,) tokens; the longer text is truncated first. If both texts are truncated
    and `room` is odd, the odd token goes to the first text if the first text was longer, else to the second. Source:
    tokenizers, truncate_encodings with LongestFirst.
    """
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    longer = np.where(shorter > room, shorter, np.maximum(shorter, room - shorter).clip(max=longer))
    halved = shorter + longer > room
    shorter, longer = np.where(halved, room // 2, shorter), np.where(halved, room - room // 2, longer)
    return np.where(first > second, longer, shorter), np.where(first > second, shorter, longer)
