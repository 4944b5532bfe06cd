"""Choices by the capability of a device, and compiled graphs. Run by test_gpu_path.py."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from pipeline.bench.cases import Case, make_batch
from pipeline.config.model import FamilyName, Model
from pipeline.config.placement import Placement
from pipeline.errors import ConfigError
from pipeline.model.attention import has_kernel
from pipeline.model.encoder import encoders_in
from pipeline.objectives.table import build_objective
from pipeline.train.hardware import autocast_of, chosen_precision
from tests.conftest import parts_of_preset, tiny_preset
from tests.cuda.device import CUDA, Properties, move, on_device, properties

MODEL = Model(layers=2, width=32, heads=2, feed_forward=64, maximum_positions=64, attention_dropout=0.0)
SIZES = ((6, 64), (9, 48), (4, 33))


@pytest.mark.parametrize(
    ("family", "dropout"),
    [
        *((family, 0.1) for family in get_args(FamilyName)),
        *((family, 0.0) for family in ("bert", "deberta", "modernbert")),
    ],
)
def test_three_sizes_are_one_compiled_graph(family: FamilyName, dropout: float) -> None:
    # Dynamo takes the driver's own object for a constant; this one must stand for it.
    torch._dynamo.utils.common_constant_types.add(Properties)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    preset = tiny_preset(family)
    rows_of = "deberta" if family == "deberta-v2" else family  # both have rows without pairs
    model = replace(MODEL, **parts_of_preset(preset))
    model = replace(model, hidden_dropout=dropout, attention_dropout=dropout)
    module = build_objective(preset.objective, preset.sampling, model, 30_522)
    compiler = CompileCounterWithBackend("eager")
    with on_device(), torch.autocast("cuda", dtype=torch.bfloat16):
        move(module)
        module.compile(backend=compiler, dynamic=True)
        for rows, length in SIZES:
            case = Case(
                size="tiny", rows=rows, length=length, lengths="ragged", attention_dropout=dropout > 0, family=rows_of
            )
            module(make_batch(case, seed=rows).to(CUDA))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]
    kernel = "_flash_attention_forward" if dropout else "varlen_attn"
    kernels = [node for node in compiler.graphs[0].graph.nodes if kernel in str(node.target)]
    assert len(kernels) == (0 if family.startswith("deberta") else model.layers * len(encoders_in(module)))


CHOICES = [
    ("Tesla V100-SXM2-16GB", (7, 0), None, "float32", False, ("float32", "float16")),
    ("Tesla T4", (7, 5), None, "float32", False, ("float32", "float16")),
    ("NVIDIA A100-SXM4-80GB", (8, 0), None, "bfloat16", True, ("float32", "tf32", "bfloat16", "float16")),
    ("NVIDIA A10G", (8, 6), None, "bfloat16", True, ("float32", "tf32", "bfloat16", "float16")),
    ("NVIDIA L4", (8, 9), None, "bfloat16", True, ("float32", "tf32", "bfloat16", "float16", "float8")),
    ("NVIDIA H100 80GB HBM3", (9, 0), None, "bfloat16", True, ("float32", "tf32", "bfloat16", "float16", "float8")),
    ("NVIDIA B200", (10, 0), None, "bfloat16", True, ("float32", "tf32", "bfloat16", "float16", "float8")),
    ("AMD Instinct MI300X", (9, 4), "6.4", "bfloat16", False, ("float32", "bfloat16")),
]
"""Name, compute capability, ROCm's version, and what comes of them: precision, variable-length kernel, what may be
asked for.
"""


@pytest.mark.parametrize(("name", "capability", "hip", "precision", "kernel", "allowed"), CHOICES)
def test_choices_by_capability(
    name: str,
    capability: tuple[int, int],
    hip: str | None,
    precision: str,
    kernel: bool,
    allowed: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key, value in {"name": name, "major": capability[0], "minor": capability[1]}.items():
        monkeypatch.setattr(properties, key, value)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())  # torchao is there
    monkeypatch.setattr(torch.version, "hip", hip)
    assert chosen_precision(Placement(), CUDA) == precision
    with on_device():
        made = {dtype: torch.empty(5, 3, 2, 64, dtype=dtype, device=CUDA) for dtype in (torch.bfloat16, torch.float32)}
        wide = torch.empty(5, 3, 2, 264, dtype=torch.bfloat16, device=CUDA)
    for dropout in (0.0, 0.1):
        assert has_kernel(made[torch.bfloat16], dropout) == kernel
        assert not has_kernel(made[torch.float32], dropout) and not has_kernel(wide, dropout)
    assert has_kernel(wide[..., :256], 0.0) == kernel and not has_kernel(wide[..., :256], 0.1)
    for asked in ("float32", "tf32", "bfloat16", "float16", "float8"):
        placement = Placement(precision=asked)
        if asked in allowed:
            autocast_of(chosen_precision(placement, CUDA), CUDA)
        else:
            with pytest.raises(ConfigError, match=rf"^placement.precision \({asked}\) needs .* this is {name}"):
                autocast_of(chosen_precision(placement, CUDA), CUDA)
