"""Measure the cost of a checkpoint: how long training stops, and how long writing takes in the background."""

import statistics
import tempfile
import time
from dataclasses import dataclass, replace

import torch

from pipeline.config.jobs import Pretrain
from pipeline.corpus.order import Cursor
from pipeline.objectives.table import build_objective
from pipeline.optim.build import build_optimizer
from pipeline.presets.table import PRESETS, require_preset
from pipeline.reporting import Report
from pipeline.text.training import train_vocabulary
from pipeline.train.checkpoint import State
from pipeline.train.saver import Saver
from tests.benchmarks.settings import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of one checkpoint."""

    parameters: int
    """Number of the model's parameters."""
    still: float
    """Seconds for which training stops while the state is copied to host memory."""
    written: float
    """Seconds from the start of the copy until the checkpoint is published."""


def measure(config: Pretrain, output: str | None, repetitions: int) -> list[Cost]:
    """Write `repetitions` checkpoints of a model with random weights, and return the cost of each checkpoint.

    The checkpoints go into a temporary folder in `output` (None: in the system's temporary folder).
    """
    vocabulary = train_vocabulary(["a b c d e f g"] * 100, size=100, lowercase=True)
    module = build_objective(config.objective, config.sampling, config.model, config.vocabulary.most_entries)
    optimizer = build_optimizer(config.optimizer, module)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # creates the optimiser's state, which is the larger part of a checkpoint
    count, costs = sum(parameter.numel() for parameter in module.parameters()), []
    with (
        tempfile.TemporaryDirectory(prefix="bertstream-bench-", dir=output) as folder,
        Saver(
            folder, replace(config, checkpoint=replace(config.checkpoint, keep=1)), vocabulary, lambda: None, print
        ) as saver,
    ):
        for step in range(1, repetitions + 1):
            started = time.perf_counter()
            saver.save(
                State(step=step, cursor=Cursor(epoch=0, window=0, row=0, rows_in_window=1)),
                module,
                optimizer,
                wait=True,
            )
            still = time.perf_counter() - started
            saver.finish()
            costs.append(Cost(parameters=count, still=still, written=time.perf_counter() - started))
    return costs


def run(config: Checkpoint, report: Report) -> int:
    """Measure and print; return 0."""
    preset, step_milliseconds, repetitions = config.preset, config.step_milliseconds, config.repetitions
    require_preset(preset)
    costs = measure(PRESETS[preset], config.output, repetitions)
    still, written = (statistics.median(getattr(cost, name) for cost in costs) for name in ("still", "written"))
    every = PRESETS[preset].checkpoint.every
    between = every * step_milliseconds / 1000
    print(
        f"{preset}, {costs[0].parameters / 1e6:.1f} M parameters, median of {repetitions}: "
        f"training stops for {1000 * still:,.0f} ms; published after {written:.1f} s, while training continues"
    )
    print(
        f"with a checkpoint every {every} steps of {step_milliseconds:g} ms: training stops for {still / between:.3%} "
        f"of the time, and a checkpoint is being written for {written / between:.2%} of the time"
    )
    return 0
