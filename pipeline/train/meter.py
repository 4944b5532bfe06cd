"""Loss sums, tokens and time since the last log line, over all ranks."""

import time

import torch
import torch.distributed as dist


class Meter:
    """Adds up steps on one rank, and over the ranks when asked.

    Loss sums stay on their device until then. What is not yet logged travels in the checkpoint,
    so a resumed run logs the same means as one that was never stopped.
    """

    def __init__(self, world: int, carried: dict[str, float] | None = None) -> None:
        self.world = world
        self.total: dict[str, float] = dict(carried or {})
        """Over all ranks and reduced: counts, tokens, steps, seconds, wait_seconds, and loss sums as `sum.NAME`."""
        self.sums: dict[str, torch.Tensor] = {}
        self.wait = 0.0
        self.started = time.perf_counter()

    def add(self, sums: dict[str, torch.Tensor], counts: dict[str, int], tokens: int) -> None:
        """Count a step: this rank's loss sums, and the counts and tokens of all ranks."""
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self._increase({f"count.{name}": count for name, count in counts.items()} | {"tokens": tokens, "steps": 1})

    def resume_clock(self) -> None:
        """Start counting time again, after a pause that belongs to no step (an evaluation)."""
        self.started = time.perf_counter()

    def reduce(self) -> dict[str, float]:
        """Bring the totals over all ranks up to now and give them; every rank must call it. The wait is that of the rank that waited longest."""
        now = time.perf_counter()
        names = sorted(self.sums)
        sums = torch.tensor([float(self.sums[name]) for name in names], dtype=torch.float64)
        slowest = torch.tensor([self.wait, now - self.started], dtype=torch.float64)
        if self.world > 1:
            dist.all_reduce(sums)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        self._increase({f"sum.{name}": value for name, value in zip(names, sums.tolist(), strict=True)})
        self._increase({"wait_seconds": slowest[0].item(), "seconds": slowest[1].item()})
        self.sums, self.wait, self.started = {}, 0.0, now
        return dict(self.total)

    def clear(self) -> None:
        """Begin the next interval."""
        self.total = {}

    def _increase(self, amounts: dict[str, float]) -> None:
        for name, amount in amounts.items():
            self.total[name] = self.total.get(name, 0) + amount


def training_metrics(total: dict[str, float]) -> dict[str, float]:
    """Means and rates of an interval from a meter's totals: losses in nats, real tokens per second of wall time, waiting in percent of it."""
    means = {name[4:]: value / total[f"count.{name[4:]}"] for name, value in total.items() if name.startswith("sum.")}
    return {f"train/{name}_loss": mean for name, mean in means.items()} | {
        "train/loss": sum(means.values()),
        "speed/tokens_per_second": total["tokens"] / total["seconds"],
        "speed/step_milliseconds": 1000 * total["seconds"] / total["steps"],
        "speed/data_wait_percent": 100 * total["wait_seconds"] / total["seconds"],
    }
