"""Record the steps of a phase as CUDA graphs before its first step, on all ranks or on none."""

from collections.abc import Callable

import numpy as np
import torch.distributed as dist

from pipeline.batch import Batch
from pipeline.config.phases import Phase
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.train.graphs import SIZES
from pipeline.train.random_rows import random_batch


def examples_of(phase: Phase, vocabulary_size: int) -> list[Batch]:
    """Return slots of all sizes that slots of a phase are filled to, with random rows."""
    sampling, random = phase.sampling, np.random.default_rng(0)
    lengths = sorted({max(2, sampling.maximum_length * part // SIZES) for part in range(1, SIZES + 1)})
    return [random_batch(sampling, phase.batch.rows_per_slot, length, vocabulary_size, random) for length in lengths]


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
