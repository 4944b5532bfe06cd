"""Number formats in which a GPU multiplies, by compute capability and torch build; other formats are refused."""

import pytest
import torch

from pipeline.config.placement import Placement
from pipeline.errors import ConfigError
from pipeline.model import float8
from pipeline.model.gpu import Gpu, supports_matmul
from pipeline.train import hardware
from pipeline.train.hardware import autocast_of, chosen_precision, slower_precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
V100, T4 = (
    Gpu(name="Tesla V100-SXM2-16GB", capability=(7, 0), hip=False),
    Gpu(name="Tesla T4", capability=(7, 5), hip=False),
)
A100, L4 = (
    Gpu(name="NVIDIA A100-SXM4-80GB", capability=(8, 0), hip=False),
    Gpu(name="NVIDIA L4", capability=(8, 9), hip=False),
)
MI300X = Gpu(name="AMD Instinct MI300X", capability=(9, 4), hip=True)


@pytest.mark.parametrize(
    ("gpu", "formats"),
    [
        (V100, ["float32", "float16"]),
        (T4, ["float32", "float16"]),
        (A100, ["float32", "tf32", "bfloat16", "float16"]),
        (L4, ["float32", "tf32", "bfloat16", "float16", "float8"]),
        (MI300X, ["float32", "bfloat16"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_a_gpu_multiplies(gpu: Gpu, formats: list[str]) -> None:
    asked = ("float32", "tf32", "bfloat16", "float16", "float8")
    assert [precision for precision in asked if supports_matmul(gpu, precision)] == formats


def test_a_format_that_the_device_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpu_of", lambda device: T4)
    for name in ("bfloat16", "tf32"):
        with pytest.raises(ConfigError) as told:
            autocast_of(chosen_precision(Placement(precision=name), CUDA), CUDA)
        assert (
            str(told.value)
            == f"placement.precision ({name}) needs a GPU of compute capability 8.0 (Ampere) or later, but this is "
            f"Tesla T4: use float32, or auto"
        )
    with pytest.raises(
        ConfigError, match=r"^placement.precision \(tf32\) needs a GPU, but this is a CPU: use float32, or auto$"
    ):
        autocast_of("tf32", CPU)


def test_capabilities_of_rocm_are_not_those_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float8, "gpu_of", lambda device: MI300X)
    with pytest.raises(
        ConfigError,
        match=r"needs an NVIDIA GPU of compute capability 8.9 .* this is AMD Instinct MI300X on ROCm: use bfloat16$",
    ):
        float8.refuse_float8(CUDA)


def test_float32_on_an_old_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpu_of", lambda device: T4)
    monkeypatch.setattr(hardware, "has_bfloat16", lambda device: False)
    assert (
        slower_precision(Placement(), CUDA)
        == "placement.precision auto: float32, because Tesla T4 does not multiply in bfloat16; placement.precision "
        "float16 is faster"
    )
    assert slower_precision(Placement(), CPU) is None and slower_precision(Placement(precision="float32"), CUDA) is None
    monkeypatch.setattr(hardware, "has_bfloat16", lambda device: True)
    assert slower_precision(Placement(), CUDA) is None


def test_tf32_is_set_for_the_process_and_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "gpu_of", lambda device: A100)
    before = torch.get_float32_matmul_precision()
    try:
        found = []
        for name in ("tf32", "float32", "bfloat16"):
            autocast = autocast_of(name, CUDA)
            found.append((torch.get_float32_matmul_precision(), autocast.device))
        assert found == [("high", "cuda"), ("highest", "cuda"), ("highest", "cuda")]
    finally:
        torch.set_float32_matmul_precision(before)
