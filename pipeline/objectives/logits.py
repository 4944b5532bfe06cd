"""Run the module of a task on rows."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pipeline.batch import PASSAGE_LENGTHS, collate_labelled
from pipeline.model.host_copies import finish_copies, start_copy
from pipeline.objectives.tasks import TaskObjective
from pipeline.tasks.prepared import Logits

ROWS_AT_ONCE = 64  # rows or passages of a batch in evaluation
ROW_TOKENS = 512  # mean tokens per row or passage of a full batch in evaluation; longer rows make a smaller batch


@torch.inference_mode()
def compute_logits(
    module: TaskObjective,
    rows: pa.Table,
    device: torch.device,
    autocast: torch.autocast,
    after: Callable[[int], None] = lambda rows: None,
) -> Logits:
    """Return the module's logits of each row, in order.

    After each batch, `after` is called with the number of rows in the batch.
    """
    module.eval()
    # Batches hold rows of similar length, so that little padding is computed.
    order = np.argsort(rows["ids"].combine_chunks().value_lengths().to_numpy(), kind="stable")
    copies: list[tuple[Tensor, Tensor]] = []
    with autocast:
        for chosen in _evaluated_together(rows, order):
            batch = collate_labelled(rows.take(chosen).combine_chunks())
            copies.append((start_copy(module.logits(batch.to(device)).float()), batch.offsets))
            after(len(chosen))
    finish_copies(device)
    rows_of_logits: list[np.ndarray] = []
    for logits, offsets in copies:
        rows_of_logits += np.split(logits.numpy(), offsets[1:-1].numpy()) if module.per_token else list(logits.numpy())
    return [rows_of_logits[index] for index in np.argsort(order)]


def _evaluated_together(rows: pa.Table, order: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the indices of the rows of each batch in evaluation: consecutive parts of `order`.

    A part has at most ROWS_AT_ONCE rows and ROWS_AT_ONCE * ROW_TOKENS tokens, or a single row. If rows are whole texts,
    passages count instead of rows.
    """
    tokens = rows["ids"].combine_chunks().value_lengths().to_numpy()[order]
    counts = np.ones(len(order), np.int64)
    if PASSAGE_LENGTHS in rows.schema.names:
        counts = rows[PASSAGE_LENGTHS].combine_chunks().value_lengths().to_numpy()[order]
    start = 0
    while start < len(order):
        part = slice(start, start + ROWS_AT_ONCE)
        fitting = max(1, min(_fitting(counts[part], ROWS_AT_ONCE), _fitting(tokens[part], ROWS_AT_ONCE * ROW_TOKENS)))
        yield order[start : start + fitting]
        start += fitting


def _fitting(sizes: np.ndarray, most: int) -> int:
    """Return how many of the first sizes add up to at most `most`."""
    return int(np.searchsorted(np.cumsum(sizes), most, side="right"))
