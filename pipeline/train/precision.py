"""Number format of matrix products: choose it by settings and hardware."""

import torch

from pipeline.config.training import ModelPlacement, Placement
from pipeline.errors import ConfigError
from pipeline.model.float8 import refuse_float8
from pipeline.model.gpu import AMPERE, gpu_of, supports_matmul


def chosen_precision(placement: Placement | ModelPlacement, device: torch.device) -> str:
    """Return the number format of matrix products: the setting, or by default bfloat16 where the hardware supports it.

    Raises ConfigError where float8 is not available.
    """
    if placement.precision == "float8":
        refuse_float8(device)
    if placement.precision == "auto":
        return "bfloat16" if has_bfloat16(device) else "float32"
    return placement.precision


def autocast_of(precision: str, device: torch.device) -> torch.autocast:
    """Return autocast to bfloat16, also around float8 products, and set whether this process uses TF32 for float32
    products.

    Raises ConfigError where the device does not support the format.
    """
    if device.type == "cpu" and precision == "tf32":
        raise ConfigError("placement.precision (tf32) needs a GPU, this is a CPU: use float32, or auto")
    if device.type == "cuda" and precision != "float8" and not supports_matmul(gpu := gpu_of(device), precision):
        raise ConfigError(
            f"placement.precision ({precision}) needs a GPU of compute capability {'.'.join(map(str, AMPERE))} "
            f"(Ampere) or later, this is {gpu.name}: use float32, or auto"
        )
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision not in ("float32", "tf32"))


def slower_precision(placement: Placement | ModelPlacement, device: torch.device) -> str | None:
    """Return a line to report where `auto` leaves a GPU at float32."""
    if device.type != "cuda" or placement.precision != "auto" or has_bfloat16(device):
        return None
    return f"placement.precision auto: float32, because {gpu_of(device).name} does not multiply in bfloat16"


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies matrices in bfloat16."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16") or found.get("bf16"))
