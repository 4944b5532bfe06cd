"""Deal a stream to the workers.

A module of its own because Ray Train's dealing process imports it without the training code.
"""

from collections.abc import Mapping
from typing import Any

from ray.data import DataIterator
from ray.train import DataConfig

from pipeline.corpus.stream import Stream, blocks_for_ranks


class Dealing(DataConfig):
    """Ray Train's distribution of streams over the current number of workers, by `blocks_for_ranks`.

    Ray Train passes on what a function of `datasets` returns, so a `Stream` may stand for its dataset.
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
