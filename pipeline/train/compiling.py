"""torch.compile: decide whether it pays for a run, and compile a module that several workers train."""

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch
from torch import nn

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import Phase
from pipeline.errors import ConfigError

COMPILE_SECONDS = 60
"""Approximate start-up cost of torch.compile in seconds."""
COMPILE_GAIN = {"cpu": 0.05, "cuda": 0.1}
"""Approximate share of the time that torch.compile saves.

On CPUs: 4 to 9% from small to base and on ragged lengths. Full-length batches of tiny become 4 to 7% slower.
"""
FLOPS = {"cpu": 1e11, "cuda": 1e14}
"""Approximate operations per second without torch.compile."""


def compiles(
    config: Pretrain, vocabulary_size: int, device: torch.device, phase: Phase, say: Callable[[str], None]
) -> bool:
    """Return whether to compile the module for the steps of a phase; report the choice."""
    choice = config.placement.compile
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if choice == "auto":
        saved = COMPILE_GAIN[device.type] * _eager_seconds(config, vocabulary_size, device, phase)
        reason = None if compiler else "no C++ compiler"
        reason = reason or ("placement.recompute is on, on a CPU" if _redraws(config, device) else None)
        reason = reason or ("too short a run to pay" if saved < COMPILE_SECONDS else None)
    else:
        reason = None if choice == "on" else "placement.compile is off"
        if choice == "on" and not compiler:
            raise ConfigError(
                "placement.compile is on and there is no C++ compiler (c++, g++, clang++): "
                "install one, or set it to auto"
            )
        if choice == "on" and _redraws(config, device):
            raise ConfigError(
                "placement.compile (on) with placement.recompute (True) would recompute layers with another dropout "
                "mask on a CPU: leave one of them out"
            )
    say(f"torch.compile is off ({reason})" if reason else "torch.compile is on: the first steps are slow")
    return reason is None


def _redraws(config: Pretrain, device: torch.device) -> bool:
    """Return whether compiled code that recomputes layers would draw different dropout masks.

    The compiler does not know that the CPU operator in model/dropout.py is random.
    """
    model = config.model
    return (
        config.placement.recompute and device.type == "cpu" and max(model.hidden_dropout, model.attention_dropout) > 0
    )


def _eager_seconds(config: Pretrain, vocabulary_size: int, device: torch.device, phase: Phase) -> float:
    """Return the estimated seconds of the phase without compiling, from its matrix products."""
    width, masked = config.model.width, phase.sampling.masking.share
    tokens = (phase.end - phase.first) * phase.batch.rows_per_step * phase.sampling.maximum_length
    weights = 12 * config.model.layers * width**2 + masked * (width**2 + vocabulary_size * width)
    return 6 * weights * tokens / FLOPS[device.type]


@contextmanager
def compiled(module: nn.Module, backend: str = "inductor") -> Generator[None]:
    """Compile the module's forward as one graph for batches of all sizes, within this context and thread.

    Under DistributedDataParallel, Dynamo would split the graph at gradient buckets. That fails here: batch sizes are
    symbolic integers without metadata. As one graph, training works, but gradients are reduced after the backward
    instead of during it.
    """
    import torch._dynamo.config  # the compiler takes seconds to import, and most processes never use it

    module.compile(dynamic=True, backend=backend)
    with torch._dynamo.config.patch(optimize_ddp=False):
        yield
