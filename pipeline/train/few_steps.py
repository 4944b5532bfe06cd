"""Time a few steps of a planned run on this machine: its real model, on random rows of the planned length."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import psutil
import torch

from pipeline.config.data import Sampling
from pipeline.config.jobs import Pretrain
from pipeline.errors import ConfigError
from pipeline.model.encoder import encoders_in
from pipeline.objectives.table import build_objective
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.train.building import build_module
from pipeline.train.hardware import autocast_of, chosen_precision, cores, device_of, out_of_memory_as_config_error
from pipeline.train.random_rows import random_batch
from pipeline.train.step import StepContext, backward, update

STEPS = 5
MOST_SECONDS = 15.0
"""Seconds after which no further step is timed. Building a model and its first step come on top."""
MOST_MEMORY = 0.7
"""Share of the free memory that the steps may need, estimated."""
GROWTH = 4
"""Rows of a slot by those of the slot that was tried before."""
STATE_BYTES = 16
"""Bytes per parameter: the parameter, its gradient and both moments of Adam, in float32."""


@dataclass(frozen=True, kw_only=True)
class FewSteps:
    """Times of the steps, and where they were measured."""

    device: str
    """Name of the GPU, or "CPU"."""
    processors: int
    """GPUs of this machine, or the CPU threads that computed."""
    rows: int
    """Rows of the slot that was timed: those of the run's slots, or fewer if these would take too long."""
    slot_seconds: float
    """Forward and backward of a slot of `rows` rows, the median."""
    update_seconds: float
    """Update of the weights, the median."""

    @property
    def on_gpu(self) -> bool:
        return self.device != "CPU"


def few_steps(config: Pretrain, length: int) -> FewSteps:
    """Time up to STEPS steps of the run's first phase, with rows of `length` tokens.

    A step is one slot and an update of the weights, not compiled. Raises ConfigError, with the reason, for a run that
    cannot be measured here: if its model is too large for the free memory, or if it learns from a teacher.
    """
    phase, device = config.all_phases[0], device_of(config.placement)
    if config.objective.teacher_gives:
        raise ConfigError("its teacher, which a plan does not load, computes too")
    free = free_memory(device)
    most_rows = _fitting_rows(config, phase.sampling, length, free, device)
    threads, used = torch.get_num_threads(), config.placement.threads or cores()
    torch.set_num_threads(used)
    try:
        with out_of_memory_as_config_error(config, phase, None, device):
            take_step = _stepper(config, phase.sampling, length, device)
            rows, slots, updates = _timed(take_step, min(phase.batch.slot_rows, most_rows))
    finally:
        torch.set_num_threads(threads)
    on_gpu = device.type == "cuda"
    return FewSteps(
        device=torch.cuda.get_device_name(device) if on_gpu else "CPU",
        processors=torch.cuda.device_count() if on_gpu else used,
        rows=rows,
        slot_seconds=statistics.median(slots),
        update_seconds=statistics.median(updates),
    )


def free_memory(device: torch.device) -> int:
    """Return the bytes of memory that are free on a device."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available


def _fitting_rows(config: Pretrain, sampling: Sampling, length: int, free: int, device: torch.device) -> int:
    """Return how many rows of `length` tokens fit into the free bytes. Raises ConfigError if not even one does.

    Activations are estimated for code that keeps all of them, in float32 (34 numbers of 2 bytes per token, layer and
    unit of the width, and 5 per head and token attended to, in Korthikanti et al. 2022).
    """
    model = config.model
    with torch.device("meta"):
        module = build_objective(config.objective, config.sampling, model, config.vocabulary.most_entries)
        state = STATE_BYTES * sum(parameter.numel() for parameter in module.parameters())
    layers = len(encoders_in(module)) * model.layers * (68 * model.width + 20 * model.heads * length)
    token = layers + 12 * (sampling.masking.share if sampling.masks else 0) * config.vocabulary.most_entries
    row = sampling.sequences * length * token
    if state + row > MOST_MEMORY * free:
        raise ConfigError(
            f"its weights, gradients and optimizer with one row need about {(state + row) / 1e9:,.1f} GB, and "
            f"{free / 1e9:,.1f} GB of the {'GPU' if device.type == 'cuda' else 'machine'} are free"
        )
    return int((MOST_MEMORY * free - state) // row)


def _stepper(
    config: Pretrain, sampling: Sampling, length: int, device: torch.device
) -> Callable[[int], tuple[float, float]]:
    """Build the model; return a function that takes a step on some rows, and returns the seconds of slot and update."""
    precision = chosen_precision(config.placement, device)
    module = build_module(config, config.vocabulary.most_entries, device, precision)
    optimizer = build_optimizer(config.optimizer, module)
    compute = StepContext(device=device, autocast=autocast_of(precision, device), seed=config.seed)
    random = np.random.default_rng(config.seed)

    def seconds() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    def take_step(rows: int) -> tuple[float, float]:
        batch = random_batch(sampling, rows, length, config.vocabulary.most_entries, random)
        begun = seconds()
        backward(module, [(0, batch)], divisors(module.counts(batch), module.weights), compute, step=1)
        computed = seconds()
        update(optimizer, module, rate=0.0, clip_norm=1.0)
        return computed - begun, seconds() - computed

    return take_step


def _timed(take_step: Callable[[int], tuple[float, float]], most_rows: int) -> tuple[int, list[float], list[float]]:
    """Return the rows of the slots that were timed, and the seconds of slots and of updates.

    Slots grow from one row as long as two steps of the next size fit into MOST_SECONDS, by the time of the last size.
    """
    take_step(1)  # allocates the optimizer's state
    deadline, rows, last = time.perf_counter() + MOST_SECONDS, 1, sum(take_step(1))
    while rows < most_rows and time.perf_counter() + 2 * GROWTH * last < deadline:
        rows = min(GROWTH * rows, most_rows)
        last = sum(take_step(rows))
    times: list[tuple[float, float]] = []
    while not times or (len(times) < STEPS and time.perf_counter() < deadline):
        times.append(take_step(rows))
    return rows, [slot for slot, _ in times], [updating for _, updating in times]
