"""Deal a stream to the workers.

This is a module of its own, so that the Ray Train process that deals the stream does not import the training code.
"""

from collections.abc import Mapping
from typing import Any

from ray.data import DataIterator
from ray.train import DataConfig

from pipeline.corpus.stream import Stream, blocks_for_ranks


class Dealing(DataConfig):
    """Deal each stream to the current number of workers with `blocks_for_ranks`.

    Ray Train allows a function in place of each dataset, and passes its result to `configure` unchanged. So here the
    functions return a `Stream`, and `configure` makes the dataset.
    """

    def configure(
        self, datasets: Mapping[str, Stream], world_size: int, *args: Any, **kwargs: Any
    ) -> list[dict[str, DataIterator]]:
        return super().configure(
            {name: blocks_for_ranks(stream, world_size) for name, stream in datasets.items()},
            world_size,
            *args,
            **kwargs,
        )
