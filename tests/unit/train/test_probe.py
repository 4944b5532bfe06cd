"""GPUs that torch cannot use, in one line."""

from dataclasses import replace

import pytest
import torch

from pipeline.errors import ConfigError
from pipeline.train.automatic import FreeMemory
from pipeline.train.probe import GpuReport, gpu_problem, gpu_report, least_memory, refuse


@pytest.mark.skipif(
    torch.version.cuda is not None or torch.version.hip is not None, reason="needs a build of torch without CUDA"
)
def test_a_build_without_cuda_cannot_use_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_problem() == f"its torch {torch.__version__} is a build without CUDA"
    assert gpu_report() == GpuReport(problem=gpu_problem())
    monkeypatch.setattr(torch.version, "xpu", "20250101")
    assert gpu_problem() == f"its torch {torch.__version__} is a build for Intel GPUs, which are not used here"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_what_the_driver_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert gpu_problem().startswith(f"its torch {torch.__version__} fails: ")


def test_a_gpu_reports_its_name_and_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.train.probe.gpu_problem", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20, 24))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    small = FreeMemory(gpu="NVIDIA L4", bytes=20, has_kernel=True)
    large = FreeMemory(gpu="Tesla V100", bytes=141, has_kernel=False)
    assert gpu_report() == GpuReport(memory=small)
    assert least_memory([None, small]) == small and least_memory([None]) is None
    assert least_memory([None, large, small, large]) == replace(small, has_kernel=False)


def test_nodes_are_named() -> None:
    refuse({"10.0.0.1": None, "10.0.0.2": None}, 2)
    with pytest.raises(ConfigError) as told:
        refuse({"10.0.0.1": None, "10.0.0.2": "its torch 2.13.0+cpu is a build without CUDA"}, 2)
    assert str(told.value) == (
        "torch cannot use the GPUs of 1 of 2 nodes with GPUs (10.0.0.2: "
        "its torch 2.13.0+cpu is a build without CUDA); "
        "repair those nodes, leave them out, or set placement.device cpu"
    )
    with pytest.raises(ConfigError, match=r"of 9 of 9 nodes .*\(1: old; 2: old; 3: old\); repair"):
        refuse({str(number): "old" for number in range(1, 10)}, 9)
