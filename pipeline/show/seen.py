"""What a training run saw at a step and row: recomputed from (seed, epoch, position)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipeline import storage
from pipeline.config.phases import Phase
from pipeline.corpus.order import Cursor, cursor_for_phase, offset, permutation, row_after, slots_at
from pipeline.corpus.prepare import load_corpus, read_window
from pipeline.corpus.stream import StreamSettings, repeat_by_weight, settings_for_phase, window_rows
from pipeline.errors import ConfigError, DataError
from pipeline.text.vocabulary import Vocabulary, load_vocabulary
from pipeline.text.wordpiece import WordPiece
from pipeline.train import checkpoint, run


@dataclass(frozen=True, kw_only=True)
class SeenRow:
    """One row, with its phase, the documents of its window and the vocabulary that its ids are of."""

    row: dict[str, Any]
    phase: Phase
    documents: pa.Table
    vocabulary: Vocabulary
    known: int
    """The last step that the run is known to have trained; it may be further."""


def recompute_rows(folder: str, step: int, row: int, number: int = 1) -> list[SeenRow]:
    """So many rows from `row` on of the global batch of step `step` (1 is the first) of the run in a folder.

    Reads from the last position before it that the run wrote down (one a checkpoint), so at most the windows between two checkpoints are
    made again. Raises ConfigError where there is no such step or row, DataError where the corpus is no more what it was,
    or the versions here may give other rows.
    """
    folder = storage.absolute(folder)
    recorded = run.read_run(folder)
    if recorded is None:
        raise ConfigError(f"{folder} is not the folder of a run: {run.RUN} is missing")
    run.refuse_other_versions(folder, recorded["identity"])
    known = require_trained(folder, recorded["steps"], step)
    phase = run.settings_of(recorded).phase_at(step - 1)
    require_rows(step, slots_at(step - 1 - phase.first, phase.batch) * phase.batch.rows_per_slot, row, number)
    before, cursor = position_before(folder, step - 1)
    if before < phase.first:
        raise ConfigError(
            f"step ({step}) is in the second phase, from step {phase.first + 1} on, and the run has not come to it: the newest position before it is step {before}'s"
        )
    settings = settings_for_phase(stream_of(folder, recorded), phase)
    skipped = offset(step - 1 - phase.first, phase.batch) + row - offset(before - phase.first, phase.batch)
    found: list[SeenRow] = []
    for table, place in rows_after(settings, cursor_for_phase(cursor, phase, before)):
        rows = table.slice(skipped, number - len(found)).to_pylist()
        if rows:
            documents = documents_of(settings, rows[0]["epoch"], place)
            found += [
                SeenRow(row=at, phase=phase, documents=documents, vocabulary=settings.vocabulary, known=known)
                for at in rows
            ]
        if len(found) == number:
            return found
        skipped = max(0, skipped - table.num_rows)
    raise AssertionError("epochs have no end")


def require_trained(folder: str, planned: int, step: int) -> int:
    """The last step known to be trained. Raises ConfigError where `step` is above it, for an unfinished run above its planned steps."""
    summary = run.read_summary(folder)
    ended = summary["steps"] if summary else 0
    known = max([ended, *checkpoint.positions(folder), *checkpoint.steps_saved(folder)])
    most = max(known, planned)  # a run may be ahead of its newest checkpoint
    if not 1 <= step <= most:
        last = (
            "the last step that the run trained"
            if ended >= known
            else f"the run is not finished, and its newest checkpoint is of step {known}"
        )
        raise ConfigError(f"step ({step}) must be from 1 to {most}: {last}")
    return known


def require_rows(step: int, rows: int, row: int, number: int) -> None:
    """Raise ConfigError unless so many rows from `row` on are rows of a step of `rows`."""
    if not 0 <= row < rows:
        raise ConfigError(f"row ({row}) must be from 0 to {rows - 1}: step {step} has {rows} rows")
    if not 1 <= number <= rows - row:
        raise ConfigError(
            f"number ({number}) must be from 1 to {rows - row} with row {row}: step {step} has {rows} rows"
        )


def stream_of(folder: str, recorded: dict[str, Any]) -> StreamSettings:
    """The stream of a run's first phase, from what it recorded. Raises DataError where its corpus has another fingerprint now."""
    identity = recorded["identity"]
    corpus = load_corpus(recorded["corpus"])
    if corpus.fingerprint != identity["corpus.fingerprint"]:
        raise DataError(
            f"{corpus.folder} is no more the corpus of this run: fingerprint {corpus.fingerprint[:12]}, the run's is {identity['corpus.fingerprint'][:12]}; prepare it from the same inputs again"
        )
    config = run.settings_of(recorded)
    return StreamSettings(
        corpus=corpus, vocabulary=vocabulary_of(folder), sampling=config.sampling, batch=config.batch, seed=config.seed
    )


def vocabulary_of(folder: str) -> Vocabulary:
    """The vocabulary that a run began with. Raises DataError where it is damaged."""
    place = storage.join(folder, run.VOCABULARY)
    if problem := storage.damage(place):
        raise DataError(f"{place} is damaged ({problem}): the command that trained the run writes it again")
    return load_vocabulary(place, None)


def position_before(folder: str, step: int) -> tuple[int, Cursor | None]:
    """The last step up to `step` after which the run wrote its cursor down, and that cursor; 0 and None where there is none."""
    found = max((saved for saved in checkpoint.positions(folder) if saved <= step), default=0)
    return found, checkpoint.read_position(folder, found) if found else None


def rows_after(settings: StreamSettings, cursor: Cursor | None) -> Iterator[tuple[pa.Table, int]]:
    """The rows after a cursor, a table with its window's place in the epoch at a time, without end."""
    windows = settings.corpus.train
    wordpiece = WordPiece(settings.vocabulary)
    number, skip = row_after(cursor, len(windows)) if cursor else (0, 0)
    while True:
        epoch, place = divmod(number, len(windows))
        yield window_rows(settings, wordpiece, windows, epoch, place).slice(skip), place
        number, skip = number + 1, 0


def documents_of(settings: StreamSettings, epoch: int, place: int) -> pa.Table:
    """The documents of the window at a place of an epoch, as often as they weigh: what rows' document numbers count."""
    windows = settings.corpus.train
    window = windows[int(permutation(settings.seed, epoch, len(windows))[place])]
    return repeat_by_weight(read_window(settings.corpus, window), settings.corpus.weights, epoch)
