"""Tell which number formats a GPU supports: by compute capability on NVIDIA, from a fixed list on ROCm."""

from dataclasses import dataclass

import torch

ADA = (8, 9)
"""Lowest compute capability whose tensor cores support float8; Hopper has a higher capability."""
LOWEST = {"float16": (7, 0), "bfloat16": (8, 0), "tf32": (8, 0), "float8": ADA}
"""Number format -> lowest compute capability of NVIDIA GPUs whose tensor cores support it (Volta, Ampere, Ada)."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU as torch sees it."""

    name: str
    capability: tuple[int, int]
    hip: bool
    """Whether torch is built for ROCm."""

    def reaches(self, capability: tuple[int, int]) -> bool:
        """Return whether this is an NVIDIA GPU of this compute capability or later."""
        return not self.hip and self.capability >= capability


def gpu_of(device: torch.device) -> Gpu:
    """Return the GPU of a CUDA device."""
    name, capability = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
    return Gpu(name=name, capability=capability, hip=torch.version.hip is not None)


def supports_matmul(gpu: Gpu, precision: str) -> bool:
    """Return whether a GPU natively multiplies matrices in a number format.

    On ROCm, return True only for float32 and bfloat16, because the others have not been tested on ROCm.
    """
    if precision == "float32" or (gpu.hip and precision == "bfloat16"):
        return True
    return gpu.reaches(LOWEST[precision])
