"""Read and write safetensors files."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from pipeline.errors import CheckpointError, PipelineError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.files.locations import is_url

OS_ERROR = re.compile(r"\(os error (\d+)\)")
"""The system's error number in a message of safetensors."""


def read_tensors(location: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file (local path or URL). Raises CheckpointError if it cannot be read."""
    try:
        if not is_url(location):
            return load_file(location)
        with scratch_folder("load") as temporary:
            local = f"{temporary}/tensors"
            storage.copy_file(location, local)
            return load_file(local)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a new file of tensors. Copies of tensors on a GPU stay in host memory until the file is written.

    Raises OSError if the file exists or cannot be written, and ValueError or RuntimeError for tensors that are not
    contiguous or share memory.
    """
    path.touch(exist_ok=False)  # another process may have mapped an existing file, so it is never written over
    try:
        save_file(dict(tensors), path, None if metadata is None else dict(metadata))
    except Exception as error:
        path.unlink(missing_ok=True)
        # A full disk is no OSError in safetensors, but callers try again or name the file only after an OSError.
        if isinstance(error, SafetensorError) and (code := OS_ERROR.search(str(error))):
            number = int(code[1])
            raise OSError(number, os.strerror(number), str(path)) from error
        raise


def errors_with_location(location: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """Return `read(*arguments)`; turn its PipelineErrors into CheckpointErrors that begin with the location."""
    try:
        return read(*arguments)
    except PipelineError as error:
        raise CheckpointError(f"{location}: {error}") from error
