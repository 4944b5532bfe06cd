"""Write safetensors files with torch and NumPy alone, in the bytes that the library safetensors writes.

A file is the length of its header in 8 bytes, the header as JSON, and the tensors' bytes, little-endian. The header
ends with spaces, so that the tensors begin at a multiple of 8 bytes. Tensors are sorted by data type, then by name.
"""

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:  # torch takes seconds to import, and Ray tasks that write NumPy arrays do not need it
    from torch import Tensor

DTYPES = {
    "int64": "I64",
    "float64": "F64",
    "float32": "F32",
    "int32": "I32",
    "bfloat16": "BF16",
    "float16": "F16",
    "int16": "I16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
"""Data type in torch and NumPy -> its name in the file, in the order of the tensors. Wider types come first, so that
each tensor begins at a multiple of its item's size.
"""
Array = TypeVar("Array", "Tensor", np.ndarray)


def write_tensors(path: Path, tensors: Mapping[str, "Tensor"], metadata: Mapping[str, str] | None = None) -> None:
    """Write a new file of torch tensors. Tensors on a GPU are copied to the host one by one.

    Raises ValueError for a tensor that is not contiguous or has a data type that is not in DTYPES, and for tensors that
    share memory. Raises OSError if the file cannot be written.
    """
    import torch

    def content(tensor: torch.Tensor) -> np.ndarray:
        return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy()

    _require_separate(tensors)
    _write(path, tensors, content, metadata)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a new file of NumPy arrays. Raises the errors of `write_tensors` for data types and files."""
    _write(path, arrays, lambda array: np.ascontiguousarray(array).reshape(-1).view(np.uint8), None)


def _write(
    path: Path,
    tensors: Mapping[str, Array],
    content: Callable[[Array], np.ndarray],
    metadata: Mapping[str, str] | None,
) -> None:
    """Write the header, then the content of one tensor after the other: its bytes, uint8 (bytes,)."""
    dtypes = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    for name, dtype in dtypes.items():
        if dtype not in DTYPES:
            raise ValueError(f"tensor {name} has the data type {dtype}, but it must be one of {', '.join(DTYPES)}")
    names = sorted(tensors, key=lambda name: (list(DTYPES).index(dtypes[name]), name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        tensor = tensors[name]
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": DTYPES[dtypes[name]], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(content(tensors[name]).data)


def _require_separate(tensors: Mapping[str, "Tensor"]) -> None:
    """Raise ValueError for a tensor that is not contiguous, and for tensors that share memory.

    Such tensors are usually views of a larger tensor, and a file would hold the shared part twice.
    """
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"tensor {name} is not contiguous: call contiguous() before writing it")
    spans = sorted(
        (tensor.untyped_storage().data_ptr(), tensor.storage_offset() * tensor.itemsize, tensor.nbytes, name)
        for name, tensor in tensors.items()
        if tensor.nbytes
    )
    for (storage, start, size, name), (other_storage, other_start, _, other) in pairwise(spans):
        if storage == other_storage and other_start < start + size:
            raise ValueError(f"tensors {name} and {other} share memory: write one of them, or a clone()")
