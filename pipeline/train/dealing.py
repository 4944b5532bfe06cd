"""A stream's way to the workers. Alone in its module: the process in which Ray Train deals imports it, and nothing of what trains."""

from collections.abc import Mapping
from typing import Any

from ray.data import DataIterator, Dataset
from ray.train import DataConfig

from pipeline.corpus.stream import blocks_for_ranks


class Dealing(DataConfig):
    """Ray Train's distribution of streams over its workers, as many as there happen to be, by `in_blocks`."""

    def configure(
        self, datasets: Mapping[str, Dataset], world_size: int, *args: Any, **kwargs: Any
    ) -> list[dict[str, DataIterator]]:
        return super().configure(
            {name: blocks_for_ranks(stream, world_size) for name, stream in datasets.items()},
            world_size,
            *args,
            **kwargs,
        )
