"""Measure loss sums, tokens and time since the last logged step, over all ranks."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

BUCKETS_PER_DECADE = 100
"""Histogram resolution of step times: a bucket's upper bound is 2.3% above its lower bound."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step on one rank; tensors stay on the device until `Meter.reduce`."""

    number: int
    """Step number, from 1."""
    sums: dict[str, torch.Tensor]
    """This rank's loss sums by term."""
    counts: dict[str, int]
    """Counts by term. This and all fields below are over all ranks."""
    norm: torch.Tensor
    """Gradient norm before clipping."""
    tokens: int
    squares: int
    """Sum of squared sequence lengths."""
    masked: int
    """Masked positions."""


class Meter:
    """Collect the steps of this rank; `reduce` adds them up over all ranks.

    Nothing is read from the device before `reduce`. Checkpoints contain the totals since the last logged step, so a
    resumed run logs the same means as a run that was never stopped.
    """

    def __init__(self, world: int, carried: dict[str, float] | None = None, device: torch.device | None = None) -> None:
        self.world = world
        self.device = device or torch.device("cpu")
        self.total: dict[str, float] = dict(carried or {})
        """Totals by name, over all ranks except for `time.BUCKET`:
        - tokens, squares, masked, steps, seconds, wait_seconds;
        - `sum.TERM` and `count.TERM`: sum and count of a loss term;
        - `time.BUCKET`: number of steps in a bucket of step time, as measured by this rank;
        - `nonfinite`, `first_nonfinite`: how many steps were not finite, and the number of the first of these steps.

        A step is non-finite if its gradient norm or one of its loss sums is NaN or infinite. Such steps add to tokens
        and time, but not to loss sums and their counts.
        """
        self.steps: list[Step] = []
        self.marks: list[float | torch.cuda.Event] = [mark(self.device)]
        self.nonfinite_in_a_row = 0
        """Number of consecutive non-finite steps up to the last step that was read."""
        self.newest_nonfinite = 0
        """Number of the newest non-finite step that was read; 0 if there was none."""
        self.step_seconds = 0.0
        """Mean seconds of the steps that the last `reduce` read, the same on every rank; 0 before any step was read."""
        self.wait = 0.0
        """Seconds that this rank has waited for data since the last `reduce`."""
        self.started = time.perf_counter()

    def add(self, step: Step) -> None:
        """Add a step whose work was just queued on the device."""
        self.steps.append(step)
        self.marks.append(mark(self.device))

    def resume_clock(self) -> None:
        """Restart the clock after a pause that belongs to no step (an evaluation)."""
        self.marks = [mark(self.device)]
        self.started = time.perf_counter()

    def reduce(self) -> dict[str, float]:
        """Return the totals over all ranks up to now; every rank must call it.

        Total time and waiting time are each the maximum over ranks.
        """
        names = sorted({name for step in self.steps for name in step.sums})
        sums, norms = _read(self.steps, names)
        now = time.perf_counter()  # after `_read` has waited for the device
        slowest = torch.tensor([self.wait, now - self.started], dtype=torch.float64)
        if self.world > 1:
            dist.all_reduce(sums)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        for step, step_sums, norm in zip(self.steps, sums.tolist(), norms.tolist(), strict=True):
            finite = bool(np.isfinite([norm, *step_sums]).all())
            self._count(step, dict(zip(names, step_sums, strict=True)), finite=finite)
        for milliseconds in durations(self.marks):
            self._increase({f"time.{_bucket(milliseconds)}": 1})
        if self.steps:
            self.step_seconds = slowest[1].item() / len(self.steps)
        self._increase({"wait_seconds": slowest[0].item(), "seconds": slowest[1].item()})
        self.steps, self.marks, self.wait, self.started = [], self.marks[-1:], 0.0, now
        return dict(self.total)

    def clear(self) -> None:
        """Start the next interval."""
        self.total = {}

    def _count(self, step: Step, sums: dict[str, float], *, finite: bool) -> None:
        self._increase({"tokens": step.tokens, "squares": step.squares, "masked": step.masked, "steps": 1})
        self.nonfinite_in_a_row = 0 if finite else self.nonfinite_in_a_row + 1
        if finite:
            self._increase(
                {f"count.{name}": count for name, count in step.counts.items()}
                | {f"sum.{name}": value for name, value in sums.items()}
            )
        else:
            self.newest_nonfinite = step.number
            self.total.setdefault("first_nonfinite", step.number)
            self._increase({"nonfinite": 1})

    def _increase(self, amounts: dict[str, float]) -> None:
        for name, amount in amounts.items():
            self.total[name] = self.total.get(name, 0) + amount


def mark(device: torch.device) -> float | torch.cuda.Event:
    """Return a time mark for `durations`: on a GPU, an event in its queue; on a CPU, the time in seconds.

    The host does not wait for a GPU.
    """
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def durations(marks: Sequence[Any]) -> list[float]:
    """Return the milliseconds between consecutive marks; the device must have passed all marks."""
    pairs = zip(marks[:-1], marks[1:], strict=True)
    return [
        before.elapsed_time(after) if isinstance(before, torch.cuda.Event) else 1000 * (after - before)
        for before, after in pairs
    ]


def _read(steps: Sequence[Step], names: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's loss sums (steps, terms) and gradient norms (steps,), float64 on the host.

    The host waits for the device only once.
    """
    if not steps:
        return torch.zeros(0, len(names), dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    zero = torch.zeros_like(steps[0].norm, dtype=torch.float64)
    rows = [
        torch.stack([step.norm.double(), *(step.sums.get(name, zero).double() for name in names)]) for step in steps
    ]
    values = torch.stack(rows).cpu()
    return values[:, 1:].contiguous(), values[:, 0]


def _bucket(milliseconds: float) -> int:
    """Return the index of a duration's bucket: BUCKETS_PER_DECADE * log10(milliseconds), rounded.

    Durations below one microsecond count as one microsecond.
    """
    return round(BUCKETS_PER_DECADE * np.log10(max(milliseconds, 1e-3)))


def percentile_milliseconds(total: Mapping[str, float], share: float) -> float:
    """Return a percentile of the step time, rounded to a bucket; 0 without steps.

    `share` is 0.95 for the 95th percentile. `total` contains the histogram as `time.BUCKET` -> steps.
    """
    buckets = sorted((int(name[5:]), count) for name, count in total.items() if name.startswith("time."))
    rank, passed = share * sum(count for _, count in buckets), 0.0
    for number, count in buckets:
        passed += count
        if passed >= rank:
            return 10.0 ** (number / BUCKETS_PER_DECADE)
    return 0.0


def training_metrics(total: dict[str, float], weights: Mapping[str, float] = MappingProxyType({})) -> dict[str, float]:
    """Return the metrics of an interval from a meter's totals.

    Losses are means in nats over the finite steps, left out if these counted nothing; speed is in tokens per second of
    wall time; waiting is in percent of wall time. `weights` maps a loss term to its weight in train/loss; terms not in
    it have weight 1.
    """
    sums = {name[4:]: value for name, value in total.items() if name.startswith("sum.")}
    means = {name: value / total[f"count.{name}"] for name, value in sums.items() if total[f"count.{name}"]}
    skipped = {"train/nonfinite_steps": total["nonfinite"]} if "nonfinite" in total else {}
    losses = {f"train/{name}_loss": mean for name, mean in means.items()} | (
        {"train/loss": sum(weights.get(name, 1) * mean for name, mean in means.items())} if means else {}
    )
    return (
        losses
        | skipped
        | {
            "speed/tokens_per_second": total["tokens"] / total["seconds"],
            "speed/step_milliseconds": 1000 * total["seconds"] / total["steps"],
            "speed/step_milliseconds_95th": percentile_milliseconds(total, 0.95),
            "speed/data_wait_percent": 100 * total["wait_seconds"] / total["seconds"],
        }
    )
