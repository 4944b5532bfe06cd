"""Deal a stream to the workers.

This is a module of its own, so that the Ray Train process that deals the stream does not import the training code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray.data import DataIterator
from ray.train import DataConfig

from pipeline.config.phases import Phase
from pipeline.corpus.order import cursor_for_phase
from pipeline.corpus.stream import Stream, StreamSettings, blocks_for_ranks, build_stream
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

    def built(self) -> Stream:
        """Return the stream. Raises OSError before the end of the phase before."""
        begin = self.phase.first
        cursor = cursor_for_phase(read_position(self.folder, begin), self.phase, begin)
        return build_stream(self.settings, cursor, self.rows, self.cpus)


class Dealing(DataConfig):
    """Deal each stream to the current number of workers with `blocks_for_ranks`.

    Ray Train allows a function in place of each dataset, and passes its result to `configure` unchanged, one dataset at
    a time and when the workers ask for it. So here the functions return a stream, and `configure` makes the dataset.
    """

    def configure(
        self, datasets: Mapping[str, Stream | LaterStream], world_size: int, *args: Any, **kwargs: Any
    ) -> list[dict[str, DataIterator]]:
        streams = {name: each.built() if isinstance(each, LaterStream) else each for name, each in datasets.items()}
        return super().configure(
            {name: blocks_for_ranks(stream, world_size) for name, stream in streams.items()},
            world_size,
            *args,
            **kwargs,
        )
