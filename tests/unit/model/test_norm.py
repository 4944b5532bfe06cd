from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.jobs import Pretrain
from pipeline.config.placement import Placement
from pipeline.errors import ConfigError
from pipeline.model.encoder import encoders_in
from pipeline.model.norm import LayerNorm
from pipeline.train.building import build_module
from tests.conftest import tiers

HALF = torch.autocast("cpu", dtype=torch.bfloat16)


def test_the_output_has_the_format_of_the_input_and_its_statistics_are_exact() -> None:
    # A mean of 100 and a deviation of 1: in bfloat16, whose steps are 0.5 at 100, sums would lose the deviation.
    torch.manual_seed(0)
    norm, states = LayerNorm(512), (100 + torch.randn(64, 512)).bfloat16()
    with HALF:
        narrow, wide = norm(states), norm(states.float())
    assert narrow.dtype == torch.bfloat16 and wide.dtype == torch.float32
    exact = F.layer_norm(states.double(), (512,))
    torch.testing.assert_close(narrow.double(), exact, rtol=2**-8, atol=1e-3)
    torch.testing.assert_close(wide.double(), exact, rtol=1e-5, atol=1e-4)


def test_weights_get_gradients_in_float32() -> None:
    norm = LayerNorm(8)
    with HALF:
        norm(torch.randn(4, 8, dtype=torch.bfloat16)).sum().backward()
    assert norm.weight.grad is not None and norm.weight.grad.dtype == torch.float32


def test_all_layers_keep_the_narrow_format(training, family_config: Pretrain) -> None:
    placement = Placement(residual="bfloat16", recompute=True, recompute_products=False)
    config = replace(family_config, placement=placement)
    found: list[torch.dtype] = []
    module = build_module(config, training.vocabulary.size, torch.device("cpu"), "bfloat16")
    for encoder in encoders_in(module):
        assert encoder.narrow_residual and encoder.recompute and not encoder.recompute_products
        for layer in encoder.layers:
            layer.register_forward_hook(lambda part, given, out: found.extend([given[0].dtype, out.dtype]))
    batch: Batch = training.work(config, Path("unused"), {}).heldout[0]
    with HALF:
        module(batch)
    assert set(found) == {torch.bfloat16}
    found.clear()
    module(batch)
    assert set(found) == {torch.float32}, "without autocast there is nothing to narrow"


@tiers("family_config", first=("bert",), second=("modernbert", "deberta"))
def test_a_run_with_narrow_sums_learns_as_one_with_float32(training, family_config: Pretrain, tmp_path: Path) -> None:
    wide: dict[int, dict[str, float]] = {}
    narrow: dict[int, dict[str, float]] = {}
    half = Placement(precision="bfloat16")
    training.run(replace(family_config, steps=6, placement=half), tmp_path / "wide", wide)
    training.run(
        replace(family_config, steps=6, placement=replace(half, residual="bfloat16")), tmp_path / "narrow", narrow
    )
    assert narrow[6]["train/loss"] == pytest.approx(wide[6]["train/loss"], rel=0.02)
    assert narrow[6]["train/loss"] != wide[6]["train/loss"]


def test_narrow_sums_need_narrow_products(training, tiny_config: Pretrain) -> None:
    with pytest.raises(ConfigError, match=r"^placement.residual \(bfloat16\) needs .* not float32$"):
        Placement(residual="bfloat16", precision="float32")
    config = replace(tiny_config, placement=Placement(residual="bfloat16"))
    with pytest.raises(ConfigError, match="this device computes in float32"):
        build_module(config, training.vocabulary.size, torch.device("cpu"), "float32")
