"""The windows that a run has read, and the steps that its rows belong to, from the positions that it has saved."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import Phase
from pipeline.corpus.order import cursor_for_phase, offset, permutation, row_after
from pipeline.corpus.stream import StreamSettings
from pipeline.errors import DataError
from pipeline.saved import run
from pipeline.train import run_identity
from pipeline.train.positions import positions, read_position
from pipeline.train.run_stream import stream_of_run


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """The steps between two saved positions, and their windows, counted through all epochs."""

    phase: Phase
    before: int
    """Steps before the first step of the stretch."""
    until: int
    """Last step, counted from 1."""
    first: int
    """First window."""
    skipped: int
    """Rows of the first window that earlier steps have read."""
    last: int
    """Last window."""
    read: int
    """Rows of the last window that have been read at the end of the stretch."""


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """A run, with what it has read up to its newest saved position."""

    folder: str
    recorded: dict[str, Any]
    settings: StreamSettings
    """Settings of the stream in the first phase."""
    stretches: tuple[Stretch, ...]

    @classmethod
    def of(cls, folder: str) -> Self:
        """Read the run in a folder.

        Raises ConfigError if there is none, and DataError if its corpus is gone or has changed, if the installed
        versions may make other rows, or if the run has not saved a position yet.
        """
        recorded = run.recorded_run(folder)
        run_identity.refuse_other_versions(folder, recorded["identity"])
        settings = stream_of_run(folder, recorded)
        stretches = _trained_stretches(folder, run.settings_of(recorded), len(settings.corpus.train))
        return cls(folder=folder, recorded=recorded, settings=settings, stretches=tuple(stretches))

    @property
    def steps(self) -> int:
        """Steps up to the newest saved position."""
        return self.stretches[-1].until

    @property
    def epochs(self) -> int:
        """Epochs that the run has begun."""
        return 1 + self.stretches[-1].last // len(self.settings.corpus.train)

    def cut_windows(self) -> dict[int, int]:
        """Return {window: how many of its rows have been read} for the windows in which a phase, or the run, ends."""
        following = (*(stretch.phase for stretch in self.stretches[1:]), None)
        return {one.last: one.read for one, phase in zip(self.stretches, following) if one.phase != phase}


def _trained_stretches(folder: str, settings: Pretrain, windows: int) -> list[Stretch]:
    """Return the stretches of a run up to its newest saved position; `windows` is the number of windows per epoch."""
    saved = positions(folder)
    if not saved:
        raise DataError(f"{folder} has no checkpoint yet: audit the run after its first checkpoint")
    stretches, cursor = [], None
    for before, until in pairwise((0, *saved)):
        phase = settings.phase_at(before)
        start = cursor_for_phase(cursor, phase, before)
        first, skipped = row_after(start, windows) if start else (0, 0)
        cursor = read_position(folder, until)
        last = cursor.epoch * windows + cursor.window
        stretches.append(
            Stretch(
                phase=phase, before=before, until=until, first=first, skipped=skipped, last=last, read=cursor.row + 1
            )
        )
    return stretches


def windows_to_make(stretches: Sequence[Stretch], holds: np.ndarray, seed: int) -> Iterator[tuple[Stretch, range]]:
    """Yield (stretch, its windows up to the last one with a text), for each stretch with such a window.

    `holds`, bool (windows,): whether a window of the corpus has a text. The windows before tell the steps of its rows.
    """
    for stretch in stretches:
        last = -1
        for epoch in range(stretch.first // len(holds), stretch.last // len(holds) + 1):
            numbers = epoch * len(holds) + np.flatnonzero(holds[permutation(seed, epoch, len(holds))])
            own = numbers[(numbers >= stretch.first) & (numbers <= stretch.last)]
            last = max(last, *own.tolist(), -1)
        if last >= 0:
            yield stretch, range(stretch.first, last + 1)


def window_at(number: int, seed: int, windows: int) -> int:
    """Return the index in the corpus of a window that is counted through all epochs."""
    epoch, position = divmod(number, windows)
    return int(permutation(seed, epoch, windows)[position])


class StepFinder:
    """The step of each row of windows whose numbers of rows are known."""

    def __init__(self, made: Sequence[tuple[Stretch, range]], rows: Mapping[int, int]) -> None:
        """Take the result of `windows_to_make`, and {window: its rows}."""
        self.made = made
        self.starts = [
            np.cumsum([-stretch.skipped, *(rows[number] for number in numbers)]).tolist() for stretch, numbers in made
        ]
        self.offsets = [_offsets(stretch) for stretch, _ in made]

    def step_of(self, window: int, row: int) -> tuple[int, int]:
        """Return (step, from 1; index of the row in the step) of a row that the run has read."""
        index = bisect_right(self.made, (window, row), key=lambda made: (made[0].first, made[0].skipped)) - 1
        stretch, offsets = self.made[index][0], self.offsets[index]
        place = self.starts[index][window - stretch.first] + row + int(offsets[0])
        step = int(np.searchsorted(offsets, place, side="right")) - 1
        return stretch.before + step + 1, place - int(offsets[step])


def _offsets(stretch: Stretch) -> np.ndarray:
    """Return the rows of the phase before each step of a stretch, int64 (steps,)."""
    first, batch = stretch.phase.first, stretch.phase.batch
    return np.array([offset(step - first, batch) for step in range(stretch.before, stretch.until)])
