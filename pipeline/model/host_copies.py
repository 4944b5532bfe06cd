"""Copy tensors to the host. From a GPU, copies go to page-locked memory, and the host waits once for all of them."""

from collections.abc import Mapping

import torch
from torch import Tensor


def start_copy(tensor: Tensor) -> Tensor:
    """Return a copy on the host. From a GPU, its values are there only after `finish_copies`."""
    return tensor.detach().to("cpu", copy=True, non_blocking=tensor.is_cuda)


def finish_copies(device: torch.device) -> None:
    """Wait for the copies from a device that were started on its current stream."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous copies on the host; later changes of the tensors do not change the copies."""
    copies = {name: start_copy(tensor) for name, tensor in tensors.items()}
    for device in {tensor.device for tensor in tensors.values()}:
        finish_copies(device)
    return {name: copy.contiguous() for name, copy in copies.items()}
