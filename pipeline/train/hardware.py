"""Device use of a run: FLOPs utilisation, peak memory, and advice when memory runs out."""

import os
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import Phase
from pipeline.errors import ConfigError
from pipeline.model.flops import TokenCounts, flops_per_token, peak_flops, utilisation

CPU_ALLOCATOR_FAILED = "DefaultCPUAllocator:"  # how torch's RuntimeError about memory on a CPU begins, or goes on


def device_peak(device: torch.device, precision: str) -> float | None:
    """Return the dense peak of a GPU in operations per second for a number format; None where unknown, as on a CPU."""
    return peak_flops(torch.cuda.get_device_name(device), precision) if device.type == "cuda" else None


def utilisation_percent(
    config: Pretrain, vocabulary_size: int, total: Mapping[str, float], seconds: float, peak: float
) -> float:
    """Return model FLOPs utilisation in percent of devices with this total peak, from token totals."""
    counted = TokenCounts(tokens=int(total["tokens"]), squares=int(total["squares"]), masked=int(total["masked"]))
    return 100 * utilisation(flops_per_token(config.model, vocabulary_size, counted), counted.tokens / seconds, peak)


def peak_memory_bytes(device: torch.device) -> int:
    """Return peak memory in bytes: of tensors on a GPU, of the process elsewhere."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def out_of_memory_as_config_error(
    config: Pretrain, phase: Phase, step: int | None, device: torch.device
) -> Iterator[None]:
    """Raise ConfigError for a failed allocation, with what to lower; `step` counts from 1, None outside of steps."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and CPU_ALLOCATOR_FAILED not in str(error):
            raise
        length = "sampling" if phase == config.all_phases[0] else "phases"
        remedy = "" if config.placement.recompute else ", or set placement.recompute"
        raise ConfigError(
            f"out of memory on {device.type} {'outside of steps' if step is None else f'at step {step}'}: "
            f"lower {'batch' if length == 'sampling' else length}.rows_per_slot ({phase.batch.rows_per_slot}) "
            f"or {length}.maximum_length ({phase.sampling.maximum_length}){remedy}"
        ) from error


def cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
