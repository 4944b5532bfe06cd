"""Decide whether torch.compile saves more time than it costs, and compile a module, also for several workers."""

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import nn

from pipeline.config.jobs import Pretrain, eager_reason
from pipeline.errors import ConfigError
from pipeline.model.encoder import encoders_in

CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""Variable that names the folder in which torch keeps compiled code, for the next start of the same shape."""
COMPILE_SECONDS = 60
"""Approximate start-up cost of torch.compile in seconds."""
COMPILE_GAIN = {"cpu": 0.05, "cuda": 0.15}
"""Approximate share of the training time that torch.compile saves.

Measured on CPUs:
- bert-small to bert-base: 4 to 9%;
- batches with sequences of different lengths: also 4 to 9%;
- bert-tiny with full-length sequences: none; training becomes 4 to 7% slower.

Measured on an H100, bert-base with 256 rows: 17%.
"""
FLOPS = {"cpu": 1e11, "cuda": 1e14}
"""Approximate floating-point operations per second without torch.compile."""


def compiles(
    config: Pretrain, vocabulary_size: int, device: torch.device, done: int, say: Callable[[str], None]
) -> bool:
    """Return whether to compile the module for the steps after the first `done`, and report the choice with `say`.

    Raises ConfigError if placement.compile is on and cannot work.
    """
    choice = config.placement.compile
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if choice == "auto":
        saved = COMPILE_GAIN[device.type] * _eager_seconds(config, vocabulary_size, device, done)
        reason = None if compiler else "no C++ compiler"
        reason = reason or ("placement.recompute is on and the device is a CPU" if _redraws(config, device) else None)
        reason = reason or eager_reason(config)
        reason = reason or ("the run is too short to save time" if saved < COMPILE_SECONDS else None)
    else:
        reason = None if choice == "on" else "placement.compile is off"
        if choice == "on" and not compiler:
            raise ConfigError(
                "placement.compile is on, but there is no C++ compiler (c++, g++, clang++): "
                "install one, or set placement.compile to auto"
            )
        if choice == "on" and _redraws(config, device):
            raise ConfigError(
                "placement.compile (on) with placement.recompute (True) would recompute layers with another dropout "
                "mask on a CPU: leave placement.compile or placement.recompute out"
            )
    say(f"torch.compile is off ({reason})" if reason else "torch.compile is on: the first steps are slow")
    return reason is None


def _redraws(config: Pretrain, device: torch.device) -> bool:
    """Return whether compiled code would draw different dropout masks when it recomputes layers for the backward.

    This happens on a CPU, because the compiler does not know that the operator in model/dropout.py is random.
    """
    model = config.model
    return (
        config.placement.recompute and device.type == "cpu" and max(model.hidden_dropout, model.attention_dropout) > 0
    )


def _eager_seconds(config: Pretrain, vocabulary_size: int, device: torch.device, done: int) -> float:
    """Estimate the seconds of the steps after the first `done` without torch.compile, from the FLOPs of products."""
    width, flops = config.model.width, 0.0
    for phase in config.all_phases:
        steps = max(0, phase.end - max(done, phase.first))
        tokens = steps * phase.batch.rows_per_step * phase.sampling.maximum_length
        predicted = phase.sampling.masking.share * (width**2 + vocabulary_size * width)
        flops += 6 * tokens * (12 * config.model.layers * width**2 + predicted)
    return flops / FLOPS[device.type]


@contextmanager
def compiled(module: nn.Module, world: int = 1, backend: str = "inductor", *, overlaps: bool = True) -> Generator[None]:
    """Compile the module's forward for batches of all sizes: as one graph, or with `world` ranks each layer.

    `overlaps`: with several ranks, DistributedDataParallel sends gradients during the backward.

    Call the module inside this context only, and in the same thread.

    The gradients of a graph are complete only at the end of its backward. With a graph per layer,
    DistributedDataParallel sends the gradients of the last layers while those of the first are computed. Layers that
    are recomputed for the backward belong to one graph also with several ranks.

    Under DistributedDataParallel, Dynamo would split graphs at gradient buckets. Splitting fails here, because batch
    sizes are symbolic integers without metadata. So splitting is off.

    Numbers of the model, such as the base of rotary positions, are constants of the compiled code. As symbols they
    would make torch analyse the model a second time at every start, without its cache.
    """
    _keep_compiled_code()
    import torch._dynamo.config  # the compiler takes seconds to import, and most processes never use it

    if world > 1 and overlaps and not any(encoder.recompute for encoder in encoders_in(module)):
        compile_layers(module, backend)
    else:
        module.compile(dynamic=True, backend=backend)
    with torch._dynamo.config.patch(optimize_ddp=False, specialize_float=True):
        yield


def _keep_compiled_code() -> None:
    """Let torch keep compiled code in the user's cache folder, unless the user has set a folder.

    Torch's default is a temporary folder, which a restart of the machine clears.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "bertstream", "compiled")
    with suppress(OSError):  # a home that cannot be written to: torch's default
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            os.environ.setdefault(CACHE, str(folder))


def compile_layers(module: nn.Module, backend: str = "inductor") -> None:
    """Compile each layer of the module's encoders for batches of all sizes, and nothing else."""
    for encoder in encoders_in(module):
        encoder.compiles_layers = True
        for layer in encoder.layers:
            layer.compile(dynamic=True, backend=backend)
