"""Read the tensors of a safetensors file by path or URL."""

from collections.abc import Callable
from typing import Any

import torch

from pipeline.errors import CheckpointError, PipelineError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.files.locations import is_url


def read_tensors(location: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file (local path or URL). Raises CheckpointError if it cannot be read."""
    # Imported here because a machine that only writes checkpoints may not have safetensors.
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if not is_url(location):
            return load_file(location)
        with scratch_folder("load") as temporary:
            local = f"{temporary}/tensors"
            storage.copy_file(location, local)
            return load_file(local)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error


def errors_with_location(location: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """Return `read(*arguments)`; turn its PipelineErrors into CheckpointErrors that begin with the location."""
    try:
        return read(*arguments)
    except PipelineError as error:
        raise CheckpointError(f"{location}: {error}") from error
