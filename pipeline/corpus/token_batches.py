"""Batches of a stream's rows for any trainer of Ray Train: NumPy arrays with the names that transformers uses."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.training import Batch
from pipeline.corpus.order import Cursor, slots_at, slots_of_rank
from pipeline.corpus.token_position import Position, can_be_ahead
from pipeline.errors import ConfigError, DataError

IGNORED = -100
"""Label that counts in no loss, as torch's default."""
PAIR_LABELS = {"not_next": "next_sentence_label", "swapped": "sentence_order_label"}
"""Column with the label of a pair of segments -> its name in models of transformers."""

Arrays = dict[str, np.ndarray]


@dataclass(kw_only=True)
class TokenBatches:
    """A worker's batches. Each iteration gives those of one step, as a list with an item for each of its slots."""

    slots: Iterator[pa.Table]
    """Rows of this worker's slots, from the start on."""
    batch: Batch
    rank: int
    world: int
    start: Position
    """Position at which the slots start."""
    steps: int
    """Steps after which the iteration ends."""
    arrays: Callable[[pa.Table], Arrays]
    """Makes a batch from the rows of a slot."""
    settings: Mapping[str, Any]
    """Settings of the stream, for the state."""

    def __post_init__(self) -> None:
        if self.world > self.batch.fewest_slots:
            raise ConfigError(
                f"{self.world} workers need as many slots per step, but batch.rows_per_step ({self.batch.fewest_rows}) "
                f"has {self.batch.fewest_slots} of batch.rows_per_slot ({self.batch.slot_rows}): use smaller slots or "
                "fewer workers"
            )
        self.position = self.start

    @property
    def step(self) -> int:
        """Number of steps taken, those before the checkpoint included."""
        return self.position.step

    def state(self) -> dict[str, Any]:
        """Return the position after the last step, for `checkpoint.update_metadata`. One worker's is enough."""
        return self.position.to_metadata(self.settings)

    def __iter__(self) -> Iterator[list[Arrays]]:
        return self

    def __next__(self) -> list[Arrays]:
        step = self.position.step
        if step >= self.steps:
            raise StopIteration
        slots = slots_at(step, self.batch)
        cursor, behind, taken = self.position.cursor, self.position.behind, 0
        batches = []
        for slot in slots_of_rank(step, self.start.step, self.batch, self.rank, self.world):
            if (rows := next(self.slots, None)) is None:  # StopIteration would end the training as if it were done
                raise DataError(f"the stream ended in step {step} of {self.steps}. Start the training again")
            first, last = (_cursor(rows, number) for number in (0, rows.num_rows - 1))
            ahead = behind + (slot - taken) * self.batch.slot_rows + 1
            if rows.num_rows != self.batch.slot_rows or not can_be_ahead(cursor, first, ahead):
                raise DataError(
                    f"step {step} got rows out of order (slot {slot} starts at {first}, which is not {ahead} rows "
                    f"after {cursor or 'the start of the stream'}) and was not trained. Start the training again"
                )
            cursor, behind, taken = last, 0, slot + 1
            batches.append(self.arrays(rows))
        self.position = Position(step=step + 1, cursor=cursor, behind=(slots - taken) * self.batch.slot_rows)
        return batches


def _cursor(rows: pa.Table, number: int) -> Cursor:
    """Return the cursor of a row (schema ROW)."""
    return Cursor(**{name: rows.column(name)[number].as_py() for name in ("epoch", "window", "row", "rows_in_window")})


def padded_arrays(rows: pa.Table, pad_id: int, masked: bool) -> Arrays:
    """Return the padded arrays of rows (schema ROW), as `TokenStream.batches` describes them."""
    ids, labels, lengths = _flat(rows, masked)
    tokens = np.arange(lengths.max()) < lengths[:, None]
    arrays = {"input_ids": np.full(tokens.shape, pad_id), "labels": np.full(tokens.shape, IGNORED)}
    arrays["input_ids"][tokens], arrays["labels"][tokens] = ids, labels
    arrays["attention_mask"] = tokens.astype(np.int64)
    for column, name in PAIR_LABELS.items():
        if not (label := rows.column(column)).null_count:
            first = rows.column("first_length").to_numpy()[:, None]
            arrays["token_type_ids"] = (tokens & (np.arange(tokens.shape[1]) >= first)).astype(np.int64)
            arrays[name] = label.to_numpy().astype(np.int64)
    return arrays


def flat_arrays(rows: pa.Table, masked: bool) -> Arrays:
    """Return the arrays of rows (schema ROW) without padding, as `TokenStream.batches` describes them."""
    ids, labels, lengths = _flat(rows, masked)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    labels[offsets[:-1]] = IGNORED  # no row's first token is predicted from the row before
    positions = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
    arrays = {"input_ids": ids[None], "labels": labels[None], "position_ids": positions[None]}
    return arrays | {"cu_seqlens": offsets.astype(np.int32)}


def _flat(rows: pa.Table, masked: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids and labels of all tokens, int64 (T,), and the lengths of the rows, int64 (N,)."""
    ids, lengths = _lists(rows, "ids")
    places, counts = _lists(rows, "masked_positions")
    places += np.repeat(np.cumsum(lengths) - lengths, counts)
    originals, _ = _lists(rows, "masked_labels")
    if masked:
        labels = np.full_like(ids, IGNORED)
        labels[places] = originals
    else:
        ids[places] = originals
        labels = ids.copy()
    return ids, labels, lengths


def _lists(rows: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all values of a column of lists as a new int64 array, and the lengths of the lists."""
    column = rows.column(name)
    values, lengths = pc.list_flatten(column), pc.list_value_length(column)
    return values.to_numpy().astype(np.int64), lengths.to_numpy().astype(np.int64)
