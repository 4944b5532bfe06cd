"""Record the steps of a phase as CUDA graphs before its first step, on all ranks or on none."""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist

from pipeline.batch import MaskedBatch
from pipeline.config.checks import require
from pipeline.config.phases import Phase
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.objectives.table import Pretraining
from pipeline.train.flat_gradients import equal_on_all_ranks
from pipeline.train.graphs import SHARES, SlotGraphs, capacity_of, has_single_slots
from pipeline.train.hardware import out_of_memory_as_config_error
from pipeline.train.random_rows import random_batch
from pipeline.train.step import prepare
from pipeline.train.work import Work


def recorded_steps(
    work: Work, module: Pretraining, optimizer: torch.optim.Optimizer, phase: Phase, done: int
) -> SlotGraphs | None:
    """Return the recorded steps of a phase of a run with `done` steps; None if each operator is to be launched.

    Raises ConfigError if there is no GPU, or if a rank cannot record them and the run must have them.
    """
    config = work.config
    if config.placement.graphs != "on":
        return None
    require(
        work.device.type == "cuda" or not work.records,
        f"placement.graphs (on) needs a GPU, but the device of {work.worker_name} is {work.device.type}: set "
        "placement.graphs auto or off",
    )
    graphs = SlotGraphs(
        module,
        work.autocast,
        work.device,
        capacity_of(phase),
        reduce_precision=config.batch.reduce_precision if work.world > 1 else None,
        single=has_single_slots(phase, work.world),
        records=work.records,
    )
    if work.world > 1:
        equal_on_all_ranks(module)

    def record() -> None:
        with out_of_memory_as_config_error(config, phase, None, work.device):
            examples = examples_of(phase, work.vocabulary.size)
            prepare(graphs, optimizer, module, examples, clip_norm=config.optimizer.clip_norm)

    problem = problem_on_any_rank(record, work.world, work.worker_name)
    if problem is None:
        return graphs
    if done or work.drop_graphs is None:
        remedy = "go on where they can, or with --placement.graphs off" if done else "set placement.graphs auto or off"
        raise ConfigError(f"placement.graphs is on, but the steps cannot be recorded ({problem}): {remedy}")
    module.zero_grad(set_to_none=True)
    if work.rank == 0:
        work.drop_graphs()
    work.say(f"placement.graphs auto: off, because the steps cannot be recorded ({problem})")
    return None


def examples_of(phase: Phase, vocabulary_size: int) -> list[MaskedBatch]:
    """Return slots of all sizes that slots of a phase are filled to, with random rows; the largest first.

    The graphs share memory, and what a large slot has freed holds the tensors of a smaller one, not the reverse.
    """
    sampling, random = phase.sampling, np.random.default_rng(0)
    lengths = sorted({max(2, math.ceil(sampling.maximum_length * share)) for share in SHARES}, reverse=True)
    return [random_batch(sampling, phase.batch.slot_rows, length, vocabulary_size, random) for length in lengths]


def problem_on_any_rank(record: Callable[[], None], world: int, name: str) -> str | None:
    """Call a function that records; return the first rank's problem, the same on every rank, or None.

    `name` is this rank's in messages. Every rank must call this function, and `record` must not wait for other ranks.
    """
    problem = None
    try:
        record()
    except (RuntimeError, ConfigError) as error:  # of CUDA, cuBLAS or the compiler; ConfigError: out of memory
        problem = f"{name}: {storage.first_line(error)}"
    problems: list[str | None] = [problem]
    if world > 1:
        problems *= world
        dist.all_gather_object(problems, problem)
    return next(filter(None, problems), None)
