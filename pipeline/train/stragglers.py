"""Find the worker that the others wait for, by comparing forward times. These times do not include the waiting."""

from collections.abc import Generator
from contextlib import contextmanager
from statistics import median
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from pipeline.train.meter import durations, mark

SLOW = 2.0
"""A worker is slow in an interval if its forward time is above this many times the median of the other workers."""
INTERVALS = 3
"""A worker is reported after this many consecutive slow intervals; an interval is from one logged step to the next."""


class Stragglers:
    """Context that times the forward passes of this rank's module with hooks; a no-op with one worker.

    A recorded slot calls no hooks, and its forward and backward are one launch. So without `objective`, the code in
    `timed` is measured.
    """

    def __init__(self, objective: nn.Module | None, rank: int, world: int, host: str, device: torch.device) -> None:
        self.objective, self.rank, self.world, self.device = objective, rank, world, device
        self.passes = "forward passes" if objective is not None else "forward and backward passes"
        self.hooks: list[Any] = []
        self.marks: list[Any] = []
        """Time marks before and after each pass since the last `read`."""
        self.slow_for = [0] * world
        """Number of consecutive slow intervals of each worker."""
        self.hosts: list[str] = [host] * world
        if world > 1:
            dist.all_gather_object(self.hosts, host)

    def __enter__(self) -> "Stragglers":
        if self.world > 1 and self.objective is not None:
            keep = lambda *_: self.marks.append(mark(self.device))  # noqa: E731  (a hook's arguments are not needed)
            self.hooks = [self.objective.register_forward_pre_hook(keep), self.objective.register_forward_hook(keep)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self.hooks:
            hook.remove()

    @contextmanager
    def timed(self) -> Generator[None]:
        """Measure the launches of the block; a no-op with one worker."""
        before = mark(self.device) if self.world > 1 else None
        yield
        if before is not None:
            self.marks += [before, mark(self.device)]

    def read(self) -> str | None:
        """Compare all ranks' times since the last call; return a line about a slow worker, or None.

        Every rank must call this method, and the device must have finished the passes.
        """
        if self.world == 1:
            return None
        passes, self.marks = durations(self.marks)[::2], []
        mine = torch.tensor([median(passes) if passes else 0.0], dtype=torch.float64)
        every = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(every, mine)
        return self.name_straggler([float(milliseconds) for milliseconds in every])

    def name_straggler(self, milliseconds: list[float]) -> str | None:
        """Return a line about a worker that has been slow for exactly INTERVALS intervals in a row, or None.

        `milliseconds` holds each worker's median time of a pass in this interval.
        """
        line = None
        for rank, own in enumerate(milliseconds):
            others = median(milliseconds[:rank] + milliseconds[rank + 1 :])
            self.slow_for[rank] = self.slow_for[rank] + 1 if own > SLOW * others > 0 else 0
            if self.slow_for[rank] == INTERVALS:
                line = (
                    f"{self.hosts[rank]} is slow: its {self.passes} take {own:,.0f} ms, "
                    f"those of the other workers {others:,.0f} ms; every step waits for this worker"
                )
        return line
