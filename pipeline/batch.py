"""Collate rows of examples into flat tensors: the sequences follow each other without padding.

Shapes: T tokens of the batch, N sequences, M masked positions.
"""

import dataclasses
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

IGNORED = -100
"""Label that counts in no loss, as torch's default."""
TEACHER = "teacher"
"""Column of a teacher's logits for each row."""
SECOND_LENGTH = "second_length"
"""Column with the length of a row's second sequence, if each row has two sequences (pipeline.tasks.schema)."""
TEXT_LENGTHS = "text_lengths"
"""Column with the lengths of a row's texts, if each text is a sequence; 0 for no text (pipeline.tasks.schema)."""
PASSAGE_LENGTHS = "passage_lengths"
"""Column with the lengths of a row's passages or choices, if each is a sequence (pipeline.tasks.schema)."""
FIRST_LENGTHS = "first_lengths"
"""Column with the length of each choice's context, if the row has choices (pipeline.tasks.schema)."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """N sequences that follow each other in flat tensors; T tokens in total.

    Subclasses add what an objective reads. All tensors are fields of the batch itself: a tensor inside a field would
    stay on the CPU.
    """

    ids_T: Tensor
    """int64: vocabulary entries, masks applied."""
    segments_T: Tensor
    """int64: 0 up to and including the first [SEP], 1 after it."""
    positions_T: Tensor
    """int64: position of each token in its own sequence, from 0."""
    offsets: Tensor
    """int32, N + 1 entries: cumulative sequence lengths, from 0 to T."""
    maximum_length: int
    """Length of the longest sequence in tokens; a Python number, so reading it does not wait for the device."""

    @property
    def tokens(self) -> int:
        return self.ids_T.shape[0]

    @property
    def sequences(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def masked(self) -> int:
        """Number of masked positions."""
        return 0

    def to(self, device: torch.device | str) -> Self:
        """Return the batch on a device; copies to an accelerator are asynchronous."""
        if torch.device(device).type == "cuda" and not self.ids_T.is_cuda:
            return unpack(self, pack(self).to(device, non_blocking=True))
        # Copies to the host are synchronous; otherwise the host could read the memory before the copy has finished.
        asynchronous, tensors = torch.device(device).type != "cpu", _tensors(self).items()
        moved: dict[str, Any] = {name: value.to(device, non_blocking=asynchronous) for name, value in tensors}
        return dataclasses.replace(self, **moved)


Kind = TypeVar("Kind", bound=Batch)
AnyBatch = Any
"""A batch of the class that its objective reads, in code that serves all objectives. The rows determine the class."""


@dataclass(frozen=True, kw_only=True)
class MaskedBatch(Batch):
    """Sequences with M masked positions."""

    masked_positions_M: Tensor
    """int64: masked positions, as indices into the T tokens of the batch."""
    masked_labels_M: Tensor
    """int64: the original entries at the masked positions."""
    is_filled: bool = False
    """Whether the last sequences are dummies (see pipeline.train.graphs)."""

    @property
    def masked(self) -> int:
        return self.masked_labels_M.shape[0]


@dataclass(frozen=True, kw_only=True)
class NextSentenceBatch(MaskedBatch):
    """Masked sequences of two segments A and B, with labels of next-sentence prediction."""

    not_next_N: Tensor
    """int64: 1 if segment B is from another document, 0 if B follows A, as in the published checkpoints."""


@dataclass(frozen=True, kw_only=True)
class SentenceOrderBatch(MaskedBatch):
    """Masked sequences of two segments A and B, with labels of sentence-order prediction."""

    swapped_N: Tensor
    """int64: 1 if segment B precedes A in the text, 0 if B follows A."""


PAIR_LABELS: dict[type[Batch], str] = {NextSentenceBatch: "not_next_N", SentenceOrderBatch: "swapped_N"}
"""Class of a batch of pairs -> its field with the label of each pair."""


@dataclass(frozen=True, kw_only=True)
class StringBatch(Batch):
    """Sequences with their strings, for a teacher with another vocabulary."""

    texts: tuple[str, ...]
    """The text of each sequence."""


@dataclass(frozen=True, kw_only=True)
class TextsBatch(Batch):
    """Rows of several texts that are compared: each text is a sequence."""

    keys: Tensor
    """int64, one row per row of two texts: 64-bit hashes of the ids of both texts, of their parent document, and of the
    ids of each hard negative, all without prompts; 0 where a row has no negative.
    """
    places: Tensor | None = None
    """int64, one per sequence: number of the text among all rows' texts, of which each row has as many as the row with
    most. None if all rows have the same number of sequences: then sequences 2 i and 2 i + 1 are the texts of row i.
    """


@dataclass(frozen=True, kw_only=True)
class TaskBatch(Batch):
    """Rows of a fine-tuning task. A row is one sequence, or two if a task encodes its texts separately."""

    labels: Tensor
    """float32: labels of all rows in one tensor: a class number or a value per row, several per row, or one per token;
    NaN for a row without a label. Empty if the rows have no labels.
    """
    teacher: Tensor
    """float32: a teacher's logits of all rows in one tensor; each row has one logit per output of the task, or one per
    sequence. Empty without a teacher.
    """


@dataclass(frozen=True, kw_only=True)
class PassagesBatch(TaskBatch):
    """Rows of a fine-tuning task that have several sequences: passages of a text, choices or candidates."""

    passages: Tensor
    """int64, one per row: number of the row's passages or choices, which are consecutive sequences; labels and logits
    are per row.
    """


def _tensors(batch: Batch) -> dict[str, Tensor]:
    """Return the batch's tensors by name, those with the largest elements first."""
    tensors = {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)}
    return dict(sorted(tensors.items(), key=lambda named: -named[1].element_size()))


def pack(batch: Batch) -> Tensor:
    """Return all tensors of a batch on the host as one uint8 tensor in page-locked memory.

    One copy of it to a GPU is asynchronous, and faster than a copy for each tensor.
    """
    return torch.cat([value.flatten().view(torch.uint8) for value in _tensors(batch).values()]).pin_memory()


def unpack(batch: Kind, packed: Tensor) -> Kind:
    """Return a batch whose tensors are views of `packed`, which `pack` returned for a batch of these shapes."""
    tensors = _tensors(batch)  # in this order, every view is aligned
    parts = zip(tensors.items(), packed.split([value.nbytes for value in tensors.values()]), strict=True)
    views: dict[str, Any] = {name: part.view(old.dtype).view(old.shape) for (name, old), part in parts}
    return dataclasses.replace(batch, **views)


def collate(rows: pa.Table | pa.RecordBatch) -> AnyBatch:
    """Collate all rows, in their order, into one flat batch.

    A row of two texts (its `parent` is not null) becomes two sequences, [CLS] A [SEP] and [CLS] B [SEP], and one for
    each hard negative: the batch is a TextsBatch. Rows with strings become a StringBatch, others a MaskedBatch or, with
    labels of pairs, one of its subclasses. Reads the model's columns of pipeline.text.schema.EXAMPLE and ignores other
    columns. Raises ValueError if there are no rows.
    """
    if rows.num_rows and "parent" in rows.schema.names and not rows.column("parent").null_count:
        return _collate_two_texts(rows)
    ids, lengths = _flat_lists(rows.column("ids"))
    first_lengths = _flat(rows.column("first_length"))
    if (strings := _strings(rows)) is not None:
        return StringBatch(**_flat_sequences(ids, lengths, first_lengths)[1], texts=strings)
    positions, counts = _flat_lists(rows.column("masked_positions"))
    labels = _flat_lists(rows.column("masked_labels"))[0]
    pairs = {name: _flat(rows.column(name)) for name in ("not_next", "swapped") if not rows.column(name).null_count}
    return masked_batch(ids, lengths, first_lengths, positions, labels, counts, **pairs)


def masked_batch(
    ids: np.ndarray,
    lengths: np.ndarray,
    first_lengths: np.ndarray,
    masked_positions: np.ndarray,
    masked_labels: np.ndarray,
    masked_counts: np.ndarray,
    not_next: np.ndarray | None = None,
    swapped: np.ndarray | None = None,
) -> MaskedBatch:
    """Build a batch from arrays of integers. Raises ValueError if there are no sequences.

    `first_lengths` (N,) are the tokens of each sequence up to and including the [SEP] of segment A. `masked_positions`
    (M,) are indices into their own sequences, of which each has `masked_counts` (N,). `ids` (T,) have masks applied.
    """
    offsets, tensors = _flat_sequences(ids, lengths, first_lengths)
    in_batch = masked_positions + np.repeat(offsets[:-1].astype(np.int64), masked_counts)
    tensors |= {"masked_positions_M": _int64(in_batch), "masked_labels_M": _int64(masked_labels)}
    if not_next is not None:
        return NextSentenceBatch(**tensors, not_next_N=_int64(not_next))
    if swapped is not None:
        return SentenceOrderBatch(**tensors, swapped_N=_int64(swapped))
    return MaskedBatch(**tensors)


def _int64(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.int64, copy=False))


def _collate_two_texts(rows: pa.Table | pa.RecordBatch) -> TextsBatch:
    """Collate rows of two texts and their hard negatives; each text is a sequence, in the order of the row."""
    ids, row_lengths = _flat_lists(rows.column("ids"))
    lengths = _lengths_of_texts(rows, row_lengths)
    places = np.flatnonzero(lengths)
    lengths_N = lengths.ravel()[places]
    later = places % lengths.shape[1] > 0  # texts that share the [CLS] of the row's first text
    ends = np.cumsum(lengths_N - later)
    begins = (ends - lengths_N + later)[later]
    ids_T = np.insert(ids, begins, ids[0])  # each text begins with [CLS]
    offsets = np.concatenate(([0], np.cumsum(lengths_N)))
    prompts = _prompt_lengths(rows, lengths.shape)
    return TextsBatch(
        ids_T=torch.from_numpy(ids_T),
        segments_T=torch.zeros(len(ids_T), dtype=torch.int64),
        positions_T=torch.from_numpy(np.arange(len(ids_T)) - np.repeat(offsets[:-1], lengths_N)),
        offsets=torch.from_numpy(offsets.astype(np.int32)),
        maximum_length=int(lengths_N.max()),
        **_rows_of_texts(ids_T, offsets, lengths, _flat(rows.column("parent")), prompts),
    )


def _prompt_lengths(rows: pa.Table | pa.RecordBatch, shape: tuple[int, ...]) -> np.ndarray:
    """Return the number of tokens of each text's prompt, int64 (rows, 2 + negatives), which is `shape`."""
    column = rows.column("prompt_lengths")
    if column.null_count:
        return np.zeros(shape, np.int64)
    first, others = _flat_lists(column)[0].reshape(-1, 2).T
    return np.column_stack((first, *[others] * (shape[1] - 1)))


def _rows_of_texts(
    ids: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, parents: np.ndarray, prompts: np.ndarray | None = None
) -> dict[str, Tensor]:
    """Return the fields `keys` and `places` of a TextsBatch.

    `lengths` (rows, texts of a row) are those of the sequences, 0 for no text; `parents` (rows,). `prompts` has the
    shape of `lengths`: the tokens of each text's prompt, after its [CLS]. Keys do not depend on prompts: a text has the
    same key with any prompt.
    """
    places = np.flatnonzero(lengths)
    texts = np.zeros(lengths.size, np.int64)
    begins = offsets[:-1] + 1 + (0 if prompts is None else prompts.ravel()[places])
    texts[places] = [_hash(ids[start:end]) for start, end in zip(begins, offsets[1:])]
    texts = texts.reshape(lengths.shape)
    keys = torch.from_numpy(np.column_stack((texts[:, :2], parents, texts[:, 2:])))
    return {"keys": keys} | ({"places": torch.from_numpy(places)} if lengths.shape[1] > 2 else {})


def _lengths_of_texts(rows: pa.Table | pa.RecordBatch, row_lengths: np.ndarray) -> np.ndarray:
    """Return the lengths of both texts and of the hard negatives of each row, as sequences of their own, int64
    (rows, 2 + negatives); 0 where a row has no negative.
    """
    first = _flat(rows.column("first_length"))
    column = rows.column("negative_lengths")
    if column.null_count:
        return np.stack((first, row_lengths - first + 1), axis=1)
    negatives = _flat_lists(column)[0].reshape(len(first), -1)
    second = row_lengths - first + 1 - (negatives - (negatives > 0)).sum(1)
    return np.column_stack((first, second, negatives))


def _hash(ids: np.ndarray) -> int:
    """Return a signed 64-bit hash of ids, the same in every process."""
    return int.from_bytes(blake2b(ids.tobytes(), digest_size=8).digest(), "little", signed=True)


def collate_labelled(rows: pa.Table | pa.RecordBatch) -> AnyBatch:
    """Collate a task's rows (schema pipeline.tasks.schema.ENCODED), in their order, into a flat batch without masking.

    Labels are those of the column `label` or `labels`, whichever has no nulls. If the rows have a column TEACHER (lists
    of float32), this column becomes TaskBatch.teacher. If the rows have a column SECOND_LENGTH, each row becomes two
    sequences, but the labels still have one entry per row. If the rows have a column TEXT_LENGTHS, each text of a row
    becomes a sequence of a TextsBatch, and a row's parent in its `keys` is its column row. If the rows have a column
    PASSAGE_LENGTHS, each passage or choice of a row becomes a sequence of a PassagesBatch.

    Raises ValueError if there are no rows.
    """
    offsets, tensors = _sequences(rows)
    if TEXT_LENGTHS in rows.schema.names:
        lengths, parents = _text_lengths(rows), _flat(rows.column("row"))
        return TextsBatch(**tensors, **_rows_of_texts(tensors["ids_T"].numpy(), offsets, lengths, parents))
    tensors |= {"labels": _task_labels(rows), "teacher": _float_lists(rows, TEACHER)}
    if PASSAGE_LENGTHS in rows.schema.names:
        passages = _flat_lists(rows.column(PASSAGE_LENGTHS))[1].astype(np.int64)
        return PassagesBatch(**tensors, passages=torch.from_numpy(passages))
    return TaskBatch(**tensors)


def _task_labels(rows: pa.Table | pa.RecordBatch) -> Tensor:
    """Return TaskBatch.labels."""
    if not (label := rows.column("label")).null_count:
        return torch.from_numpy(_flat(label).astype(np.float32))
    return torch.zeros(0) if rows.column("labels").null_count else _float_lists(rows, "labels")


def _float_lists(rows: pa.Table | pa.RecordBatch, name: str) -> Tensor:
    """Return all values of a column of lists, float32; an empty tensor if the rows have no such column."""
    if name not in rows.schema.names:
        return torch.zeros(0)
    return torch.from_numpy(_flat_lists(rows.column(name), np.float32)[0])


def _sequences(rows: pa.Table | pa.RecordBatch) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the offsets (N + 1,), and the Batch fields with the tokens and lengths of the sequences."""
    ids_T, lengths_N = _flat_lists(rows.column("ids"))
    first_N = _flat(rows.column("first_length"))
    if SECOND_LENGTH in rows.schema.names:
        lengths_N = first_N = np.stack((first_N, _flat(rows.column(SECOND_LENGTH))), axis=1).ravel()
    if TEXT_LENGTHS in rows.schema.names:
        lengths = _text_lengths(rows).ravel()
        lengths_N = first_N = lengths[lengths > 0]
    if PASSAGE_LENGTHS in rows.schema.names:
        lengths_N, passages = _flat_lists(rows.column(PASSAGE_LENGTHS))
        of_choices = FIRST_LENGTHS in rows.schema.names
        first_N = _flat_lists(rows.column(FIRST_LENGTHS))[0] if of_choices else np.repeat(first_N, passages)
    return _flat_sequences(ids_T, lengths_N, first_N)


def _flat_sequences(ids_T: np.ndarray, lengths_N: np.ndarray, first_N: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the offsets (N + 1,), and the Batch fields with the tokens and lengths of the sequences.

    `first_N` are the lengths of the first segments. Raises ValueError if there are no sequences.
    """
    if not len(lengths_N):
        raise ValueError("a batch needs at least one row")
    offsets = np.zeros(len(lengths_N) + 1, dtype=np.int32)
    np.cumsum(lengths_N, out=offsets[1:])
    starts_N = offsets[:-1].astype(np.int64)
    positions_T = np.arange(len(ids_T)) - np.repeat(starts_N, lengths_N)
    segments_T = positions_T >= np.repeat(first_N, lengths_N)
    return offsets, {
        "ids_T": _int64(ids_T),
        "segments_T": _int64(segments_T),
        "positions_T": torch.from_numpy(positions_T),
        "offsets": torch.from_numpy(offsets),
        "maximum_length": int(lengths_N.max()),
    }


def _text_lengths(rows: pa.Table | pa.RecordBatch) -> np.ndarray:
    """Return the column TEXT_LENGTHS, int64 (rows, texts of a row)."""
    return _flat_lists(rows.column(TEXT_LENGTHS))[0].reshape(rows.num_rows, -1)


def _strings(rows: pa.Table | pa.RecordBatch) -> tuple[str, ...] | None:
    """Return the text of each row; None if the rows hold no texts."""
    if "text" not in rows.schema.names or (column := rows.column("text")).null_count:
        return None
    return tuple(column.to_pylist())


def _chunks(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return column.chunks if hasattr(column, "chunks") else [column]


def _flat(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    return np.concatenate([_numpy(chunk) for chunk in _chunks(column)])


def _flat_lists(column: pa.ChunkedArray | pa.Array, kind: type[np.generic] = np.int64) -> tuple[np.ndarray, np.ndarray]:
    """Return all values of a list column as one new array of type `kind`, and the lengths of the lists."""
    # flatten() and offsets respect the bounds of a sliced array; the attribute `values` does not.
    values = [_numpy(chunk.flatten()) for chunk in _chunks(column)]
    lengths = [np.diff(_numpy(chunk.offsets)) for chunk in _chunks(column)]
    return np.concatenate(values, dtype=kind), np.concatenate(lengths)


def _numpy(values: pa.Array) -> np.ndarray:
    """Return values without nulls, booleans as uint8. `to_numpy` would import pandas, which takes half a second."""
    return np.from_dlpack(values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values)
