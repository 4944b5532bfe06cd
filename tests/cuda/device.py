"""A CUDA device that computes nothing, as a plugin of pytest: `-p tests.cuda.device`, before anything imports torch.

FAKE_CUDA names the library that was built from guard.cpp. Under `on_device()` tensors on "cuda" have shapes, types and
a device, and no data.
"""

import ctypes
import os
from dataclasses import dataclass

ctypes.CDLL(os.environ["FAKE_CUDA"])  # torch looks for a device while it is imported

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

CUDA = torch.device("cuda", 0)


@dataclass
class Properties:
    """Properties of the device that the code reads from the driver."""

    name: str = "NVIDIA H100 80GB HBM3"
    major: int = 9
    minor: int = 0
    total_memory: int = 80 << 30
    multi_processor_count: int = 132


properties = Properties()
"""Properties of the device; tests change them."""
waits: list[None] = []
"""One entry for each time that the host waited for a stream of the device."""
pinned: list[torch.Tensor] = []
"""Tensors in page-locked memory, from which copies to the device do not wait."""


def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that is recorded as page-locked."""
    pinned.append(tensor.clone())
    return pinned[-1]


class Stream:
    """A stream of the device."""

    def synchronize(self) -> None:
        """Note that the host waits."""
        waits.append(None)


def on_device() -> FakeTensorMode:
    """A context in which tensors can be made on the device and computed with; older tensors on the CPU may be used."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def move(module: torch.nn.Module) -> None:
    """Move a pretraining module to the device, where a part that two models share cannot be moved twice."""
    generator = getattr(module, "generator", None)
    shared = generator is not None and generator.encoder.embeddings is module.encoder.embeddings
    if shared:
        generator.encoder.embeddings = torch.nn.Identity()
    module.to(CUDA)
    if shared:
        generator.encoder.embeddings = module.encoder.embeddings


FakeTensorMode.avoid_device_init = True
torch.cuda._lazy_init = lambda: None
torch.cuda.is_available = lambda: True
torch.cuda.current_device = lambda: 0
torch.cuda.get_device_properties = lambda device=None: properties
torch.cuda.current_stream = lambda device=None: Stream()
torch.cuda.get_rng_state = lambda device=CUDA: torch.zeros(16, dtype=torch.uint8)
torch.Tensor.pin_memory = pin_memory

without_shapes = torch.library.Library("aten", "IMPL")  # must live as long as what it registers
without_shapes.impl(
    "_fused_adamw_.tensor_lr", lambda *arguments, **options: None, "Meta"
)  # torch has it for numbers only
