"""Safetensors files: written whole and new, or not at all."""

import errno
import resource
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from pipeline.saved.tensors import read_tensors, write_tensors

WHOLE = torch.arange(6.0)


def test_parameters_and_parts_of_one_tensor_are_read_as_they_were_written(tmp_path: Path) -> None:
    query, key = torch.arange(12.0).reshape(6, 2).chunk(2)
    tensors = {
        **{"query": query, "key": key, "empty": query[:0], "scalar": torch.tensor(1.5, dtype=torch.bfloat16)},
        "weight": torch.nn.Parameter(torch.ones(2)),
    }
    write_tensors(tmp_path / "file", tensors, {"format": "pt"})
    read = read_tensors(str(tmp_path / "file"))
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype and torch.equal(read[name], tensor), name
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": WHOLE, "c": torch.ones(2), "b": WHOLE},
        {"a": WHOLE[:4], "b": WHOLE[3:]},
        {"a": torch.ones(2, 3).T},
    ],
    ids=["twice", "overlap", "not contiguous"],
)
def test_tensors_that_share_memory_or_have_gaps_are_refused(tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"share memory|non contiguous"):
        write_tensors(tmp_path / "file", tensors)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")  # it may be mapped into the memory of a process that has loaded it
    with pytest.raises(FileExistsError):
        write_tensors(tmp_path / "file", {"a": WHOLE})
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(FileNotFoundError):
        write_tensors(tmp_path / "no" / "file", {"a": WHOLE})


def test_a_file_that_the_disk_has_no_room_for_is_an_os_error_and_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(OSError) as raised:
            write_tensors(tmp_path / "file", {"a": torch.zeros(1 << 16)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []
