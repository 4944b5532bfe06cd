"""Hardware of a run: cores, device, number format, peak memory, and advice when memory runs out."""

import os
import resource
import sys
from collections.abc import Generator
from contextlib import contextmanager

import torch

from pipeline.config.jobs import Pretrain
from pipeline.config.needs import SEVERAL_ROWS
from pipeline.config.phases import Phase
from pipeline.config.placement import DevicePlacement, ModelPlacement
from pipeline.errors import ConfigError
from pipeline.model.float8 import refuse_float8
from pipeline.model.gpu import LOWEST, gpu_of, supports_matmul

UNCAST = ("float32", "tf32", "int8")
"""Number formats in which everything but the matrix products is computed in float32."""
CPU_ALLOCATOR_FAILED = "DefaultCPUAllocator:"  # part of torch's RuntimeError when CPU memory runs out
NARROWER = ("bfloat16", "float16", "tf32")
"""Number formats with fewer digits than float32."""


def cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device_of(placement: DevicePlacement, gpus: float | None = None) -> torch.device:
    """Return the GPU that this process sees; the CPU if it sees no GPU, if placement.device is cpu, or if `gpus` is 0.

    `gpus` is the number of GPUs of this process; default: not set.
    """
    wanted = placement.device != "cpu" and gpus != 0
    return torch.device("cuda" if wanted and torch.cuda.is_available() else "cpu")


def required_device(placement: DevicePlacement) -> torch.device:
    """Return `device_of(placement)`. Raises ConfigError if placement.device is cuda and this process sees no GPU."""
    if placement.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("placement.device cuda needs a GPU, and this process sees none: use placement.device cpu")
    return device_of(placement)


def chosen_precision(placement: DevicePlacement, device: torch.device) -> str:
    """Return the number format of matrix products: placement.precision, with `auto` resolved.

    `auto` is bfloat16 if the hardware supports it, else float32. Raises ConfigError if float8 is set and not available.
    """
    if placement.precision == "float8":
        refuse_float8(device)
    if placement.precision == "auto":
        return "bfloat16" if has_bfloat16(device) else "float32"
    return placement.precision


def autocast_of(precision: str, device: torch.device) -> torch.autocast:
    """Return the autocast context for a number format, and set whether this process computes float32 products in TF32.

    The context casts to float16 or bfloat16, to the latter also for float8; for the formats UNCAST, it does nothing.
    Raises ConfigError if the device does not support the format.
    """
    if device.type == "cpu" and precision == "tf32":
        raise ConfigError("placement.precision (tf32) needs a GPU, but this is a CPU: use float32, or auto")
    if device.type == "cuda" and precision != "float8" and not supports_matmul(gpu := gpu_of(device), precision):
        needs = "Volta" if precision == "float16" else "Ampere"
        raise ConfigError(
            f"placement.precision ({precision}) needs a GPU of compute capability "
            f"{'.'.join(map(str, LOWEST[precision]))} ({needs}) or later, but this is {gpu.name}: use float32, or auto"
        )
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    dtype = torch.float16 if precision == "float16" else torch.bfloat16
    return torch.autocast(device.type, dtype=dtype, enabled=precision not in UNCAST)


def slower_precision(placement: DevicePlacement, device: torch.device) -> str | None:
    """Return a line to report if `auto` means float32 on a GPU; None otherwise."""
    if device.type != "cuda" or placement.precision != "auto" or has_bfloat16(device):
        return None
    gpu = gpu_of(device)
    faster = "; placement.precision float16 is faster" if supports_matmul(gpu, "float16") else ""
    return f"placement.precision auto: float32, because {gpu.name} does not multiply in bfloat16{faster}"


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the device's hardware multiplies matrices in bfloat16."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def peak_memory_bytes(device: torch.device) -> int:
    """Return peak memory in bytes: of tensors if the device is a GPU, otherwise of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # ru_maxrss is in bytes on macOS, and in KiB elsewhere.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def out_of_memory_as_config_error(
    config: Pretrain, phase: Phase, step: int | None, device: torch.device
) -> Generator[None]:
    """Raise ConfigError, naming the settings to lower, if an allocation inside this context fails.

    `step` is the step's number, from 1; None if the context is not a step.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and CPU_ALLOCATOR_FAILED not in str(error):
            raise
        names = phase.names
        lower = [
            f"{names.rows_per_slot} ({phase.batch.slot_rows})",
            *[f"{names.rows_per_step} ({phase.batch.rows_per_step})"] * (SEVERAL_ROWS in config.objective.needs),
            f"{names.maximum_length} ({phase.sampling.maximum_length})",
        ]
        instead = " and placement.graphs off" * (config.placement.graphs == "on")
        remedy = "" if config.placement.recompute else f", or set placement.recompute{instead}"
        half = phase.batch.dividing_rows(phase.batch.slot_rows // 2)
        if device.type == "cuda":  # only there is the size of slots chosen by what should fit
            remedy += f"; this run keeps its slots, so start a new one: {names.slots_option(half)}"
        raise ConfigError(
            f"out of memory on {device.type} {'outside of steps' if step is None else f'at step {step}'}: "
            f"lower {' or '.join(lower)}{remedy}"
        ) from error


def answer_precision(placement: ModelPlacement, trained: str | None, device: torch.device) -> str:
    """Return the number format for answers: placement.precision, unless this setting is `auto`.

    `trained` is the format that the model was trained in; None if unknown. On a GPU, `auto` means `trained` if that is
    one of NARROWER and the GPU supports it. In all other cases, `auto` means float32.
    """
    if placement.precision != "auto":
        return chosen_precision(placement, device)
    if device.type == "cpu" or trained not in NARROWER or not supports_matmul(gpu_of(device), trained):
        return "float32"
    return trained
