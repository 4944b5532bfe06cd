"""Rows of masked examples as NumPy arrays."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class MaskedRows:
    """N rows of one sequence each: T tokens, M masked positions.

    The arrays are the columns of the Arrow schema ROW that training with masks reads.
    """

    ids: np.ndarray
    """int (T,): the ids of all sequences, masks applied."""
    lengths: np.ndarray
    """int (N,): tokens of each sequence."""
    first_lengths: np.ndarray
    """int (N,): tokens of each sequence up to and including the [SEP] of segment A."""
    masked_positions: np.ndarray
    """int (M,): masked positions, each as an index into its own sequence."""
    masked_labels: np.ndarray
    """int (M,): the original ids at the masked positions."""
    masked_counts: np.ndarray
    """int (N,): masked positions of each sequence."""
    not_next: np.ndarray | None = None
    """bool (N,): label of next-sentence prediction; None in other tasks."""
    swapped: np.ndarray | None = None
    """bool (N,): label of sentence-order prediction; None in other tasks."""
    cursors: np.ndarray | None = None
    """int64 (N, 4): epoch, window, row and rows_in_window of each row of a stream, as in ROW; None for other rows."""

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    def slice(self, start: int, count: int) -> "MaskedRows":
        """Return the rows start : start + count, without a copy; fewer rows if there are fewer."""
        end = min(start + count, self.num_rows)
        tokens, masked = (slice(sizes[:start].sum(), sizes[:end].sum()) for sizes in (self.lengths, self.masked_counts))
        wanted = {"ids": tokens, "masked_positions": masked, "masked_labels": masked}
        columns: dict[str, Any] = {
            name: None if values is None else values[wanted.get(name, slice(start, end))]
            for name, values in vars(self).items()
        }
        return MaskedRows(**columns)


def concatenate(parts: Sequence[MaskedRows]) -> MaskedRows:
    """Return the rows of all parts, in order. The parts must have the same columns."""
    columns: dict[str, Any] = {}
    for field in dataclasses.fields(MaskedRows):
        values = [getattr(part, field.name) for part in parts]
        columns[field.name] = None if values[0] is None else np.concatenate(values)
    return MaskedRows(**columns)
