"""Tensor files: the same bytes as the library safetensors writes, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from pipeline.files.tensor_files import DTYPES, write_arrays, write_tensors

ODD_NAMES = ("b", "a", "a.b", "é", "🤖", "\ue000", '"quoted"', "back\\slash", "line\nend", "\x01\x7f", "")


def of_type(name: str, *shape: int) -> torch.Tensor:
    """A tensor of a type, with bytes that all differ."""
    dtype = getattr(torch, name)
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    if dtype is torch.bool:
        return (torch.arange(count) % 2 == 1).reshape(shape)
    return torch.arange(count, dtype=torch.uint8).view(dtype).reshape(shape)


def both(folder: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> tuple[bytes, bytes]:
    """The files that we and the library write."""
    (folder / "ours").unlink(missing_ok=True)  # ours is never written over another
    write_tensors(folder / "ours", tensors, metadata)
    safetensors.torch.save_file(tensors, folder / "library", metadata)
    return (folder / "ours").read_bytes(), (folder / "library").read_bytes()


def test_a_file_by_hand(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", {"b": torch.tensor([1, -2], dtype=torch.int8), "a": torch.tensor(1.0)})
    header = (
        b'{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"b":{"dtype":"I8","shape":[2],"data_offsets":[4,6]}}'
    )
    assert (tmp_path / "file").read_bytes() == b"\x70" + bytes(7) + header + b" " * 7 + b"\x00\x00\x80\x3f\x01\xfe"


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}], ids=["none", "empty", "pt"])
def test_the_bytes_are_those_of_the_library(metadata: dict[str, str] | None, tmp_path: Path) -> None:
    shapes = {"scalar": (), "empty": (0,), "no.rows": (0, 3), "vector": (5,), "matrix": (2, 3), "one": (1, 1, 1)}
    for name in DTYPES:
        ours, library = both(tmp_path, {key: of_type(name, *shape) for key, shape in shapes.items()}, metadata)
        assert ours == library, name


def test_types_are_in_the_order_of_the_library(tmp_path: Path) -> None:
    ours, library = both(tmp_path, {f"{i % 3}.{name}": of_type(name, 3) for i, name in enumerate(sorted(DTYPES))})
    assert ours == library and set(DTYPES) > {"float32", "bfloat16", "int64", "bool"}


def test_names_are_escaped_and_sorted_as_in_the_library(tmp_path: Path) -> None:
    for count in range(len(ODD_NAMES) + 1):
        ours, library = both(tmp_path, {name: torch.tensor(i) for i, name in enumerate(ODD_NAMES[:count])}, {"é": '"'})
        assert ours == library, ODD_NAMES[:count]


def test_parameters_and_parts_of_one_tensor_are_written(tmp_path: Path) -> None:
    query, key = torch.arange(12.0).reshape(6, 2).chunk(2)
    tensors = {"query": query, "key": key, "empty": query[:0], "weight": torch.nn.Parameter(torch.ones(2))}
    ours, library = both(tmp_path, tensors)
    assert ours == library and torch.equal(safetensors.torch.load(ours)["key"], key)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_arrays_are_written_as_by_the_library(dtype: str, tmp_path: Path) -> None:
    arrays = {"words": np.arange(6).reshape(2, 3).astype(dtype), "scalar": np.ones((), dtype)}
    write_arrays(tmp_path / "ours", arrays)
    safetensors.numpy.save_file(arrays, tmp_path / "library")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "library").read_bytes()
    write_arrays(tmp_path / "turned", {"words": arrays["words"].T})
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "turned")["words"], arrays["words"].T)


WHOLE = torch.arange(6.0)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"a": WHOLE, "c": torch.ones(2), "b": WHOLE},
            r"^tensors a and b share memory: write one of them, or a clone\(\)$",
        ),
        ({"a": WHOLE[:4], "b": WHOLE[3:]}, "^tensors a and b share memory"),
        ({"inner": WHOLE[1:2], "last": WHOLE[4:], "all": WHOLE}, "^tensors all and inner share memory"),
        ({"bytes": WHOLE.view(torch.uint8)[4:8], "floats": WHOLE[1:3]}, "^tensors bytes and floats share memory"),
        ({"a": torch.ones(2, 3).T}, r"^tensor a is not contiguous: call contiguous\(\) before writing it$"),
    ],
)
def test_tensors_that_share_memory_or_have_gaps_are_refused(
    tensors: dict[str, torch.Tensor], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        write_tensors(tmp_path / "file", tensors)
    assert not (tmp_path / "file").exists()
    with pytest.raises((ValueError, RuntimeError)):  # as in the library
        safetensors.torch.save_file(tensors, tmp_path / "library")


def test_other_data_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^tensor a has the data type complex64, but it must be one of int64, "):
        write_tensors(tmp_path / "file", {"a": torch.ones(2, dtype=torch.complex64)})
    assert not (tmp_path / "file").exists()


def test_a_file_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_tensors(tmp_path / "no" / "file", {"a": WHOLE})
    (tmp_path / "file").write_text("kept")  # it may be mapped into the memory of a process that has loaded it
    with pytest.raises(FileExistsError):
        write_tensors(tmp_path / "file", {"a": WHOLE})
    assert (tmp_path / "file").read_text() == "kept"
