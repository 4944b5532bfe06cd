"""Recompute what a training run saw at a step and row, from (seed, epoch, position)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline.config.phases import Phase
from pipeline.corpus.order import Cursor, cursor_for_phase, offset, permutation, row_after, slots_at
from pipeline.corpus.stream import StreamSettings, documents_of_window, settings_for_phase, window_rows
from pipeline.errors import ConfigError
from pipeline.saved import checkpoints, run
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import run_identity
from pipeline.train.positions import positions, read_position
from pipeline.train.run_stream import stream_of_run


@dataclass(frozen=True, kw_only=True)
class SeenRow:
    """One row with its phase, the documents of its window and its vocabulary."""

    row: dict[str, Any]
    phase: Phase
    documents: pa.Table
    vocabulary: Vocabulary
    known: int
    """Last step that the run's files show as trained; the run may have trained more."""


def recompute_rows(folder: str, step: int, row: int, number: int = 1) -> list[SeenRow]:
    """Return `number` rows of the global batch of step `step`, from row `row` on. Steps count from 1, rows from 0.

    The run saves its position in the stream at each checkpoint. Recomputing starts at the last position before the
    step, so at most the windows between two checkpoints are recomputed.

    Raises ConfigError if there is no such step or row. Raises DataError if the corpus has changed, or if the installed
    versions may give other rows.
    """
    recorded = run.read_run(folder)
    if recorded is None:
        raise ConfigError(f"{folder} is not the folder of a run: {run.RUN} is missing")
    run_identity.refuse_other_versions(folder, recorded["identity"])
    known = _require_trained(folder, recorded["steps"], step)
    phase = run.settings_of(recorded).phase_at(step - 1)
    _require_rows(step, slots_at(step - 1 - phase.first, phase.batch) * phase.batch.slot_rows, row, number)
    before, cursor = position_before(folder, step - 1)
    if before < phase.first:
        raise ConfigError(
            f"step ({step}) is in the phase that begins at step {phase.first + 1}, and the run has not "
            f"reached that phase: its newest saved position is after step {before}"
        )
    settings = settings_for_phase(stream_of_run(folder, recorded), phase)
    skipped = offset(step - 1 - phase.first, phase.batch) + row - offset(before - phase.first, phase.batch)
    seen_rows: list[SeenRow] = []
    for table, position in rows_after(settings, cursor_for_phase(cursor, phase, before)):
        rows = table.slice(skipped, number - len(seen_rows)).to_pylist()
        if rows:
            documents = documents_of(settings, rows[0]["epoch"], position)
            seen_rows += [
                SeenRow(row=values, phase=phase, documents=documents, vocabulary=settings.vocabulary, known=known)
                for values in rows
            ]
        if len(seen_rows) == number:
            return seen_rows
        skipped = max(0, skipped - table.num_rows)
    raise AssertionError("epochs have no end")


def _require_trained(folder: str, planned: int, step: int) -> int:
    """Return the last step that the run's files show as trained.

    `planned`: the number of steps in the run's settings. Raises ConfigError if `step` is below 1, or above the
    larger of `planned` and the returned step: a running run may be ahead of its newest checkpoint.
    """
    summary = run.read_summary(folder)
    ended = summary["steps"] if summary else 0
    known = max([ended, *positions(folder), *checkpoints.steps_saved(folder)])
    most = max(known, planned)
    if not 1 <= step <= most:
        last = (
            f"the run trained {ended} steps"
            if ended >= known
            else f"the run is not finished, and its newest checkpoint is of step {known}"
        )
        raise ConfigError(f"step ({step}) must be from 1 to {most}: {last}")
    return known


def _require_rows(step: int, rows: int, row: int, number: int) -> None:
    """Raise ConfigError unless the step has the rows `row` to `row + number - 1`, and `number` is at least 1.

    `rows` is the number of rows of the step.
    """
    if not 0 <= row < rows:
        raise ConfigError(f"row ({row}) must be from 0 to {rows - 1}: step {step} has {rows} rows")
    if not 1 <= number <= rows - row:
        raise ConfigError(
            f"number ({number}) must be from 1 to {rows - row} with row {row}: step {step} has {rows} rows"
        )


def position_before(folder: str, step: int) -> tuple[int, Cursor | None]:
    """Return the last step up to `step` at which the run saved its cursor, and this cursor.

    If there is no such step, return (0, None).
    """
    saved_step = max((saved for saved in positions(folder) if saved <= step), default=0)
    return saved_step, read_position(folder, saved_step) if saved_step else None


def rows_after(settings: StreamSettings, cursor: Cursor | None) -> Iterator[tuple[pa.Table, int]]:
    """Yield the rows after a cursor (None: from the start), without end.

    Each item is the table of one window and the window's position in the epoch.
    """
    windows = settings.corpus.train
    tokenizer = CachedTokenizer(settings.vocabulary)
    number, skip = row_after(cursor, len(windows)) if cursor else (0, 0)
    while True:
        epoch, position = divmod(number, len(windows))
        yield window_rows(settings, tokenizer, windows, epoch, position).slice(skip), position
        number, skip = number + 1, 0


def documents_of(settings: StreamSettings, epoch: int, position: int) -> pa.Table:
    """Return the documents of the window at a position of an epoch, repeated according to their weights.

    The columns `document_a` and `document_b` of rows are indices into these documents.
    """
    windows = settings.corpus.train
    window = windows[int(permutation(settings.seed, epoch, len(windows))[position])]
    return documents_of_window(settings, window, epoch)
