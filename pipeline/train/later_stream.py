"""The stream of a later phase of a run.

This is a module of its own, so that the Ray Train process that deals the stream does not import the training code.
"""

from dataclasses import dataclass

from pipeline.config.phases import Phase
from pipeline.corpus.order import cursor_for_phase
from pipeline.corpus.stream import Stream, StreamSettings, build_stream
from pipeline.train.positions import read_position


@dataclass(frozen=True, kw_only=True)
class LaterStream:
    """The stream of a phase that begins while the workers run.

    It is built when the workers ask for it, because it starts at the window after the last one of the phase before.
    """

    settings: StreamSettings
    """With the sampling and the batch of the phase."""
    phase: Phase
    folder: str
    """Folder of the run, with the position at the end of the phase before."""
    rows: int
    cpus: float

    def __call__(self) -> Stream:
        """Return the stream. Raises OSError before the end of the phase before."""
        begin = self.phase.first
        cursor = cursor_for_phase(read_position(self.folder, begin), self.phase, begin)
        return build_stream(self.settings, cursor, self.rows, self.cpus)
