import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Masked
from pipeline.config.placement import Placement
from pipeline.config.training import AdamW, Checkpoints, Lamb, StableAdamW, Tracking
from pipeline.optim import loss_scale
from pipeline.optim.build import build_optimizer, load_optimizer, optimizer_tensors
from pipeline.optim.loss_scale import BACKOFF, FIRST, GROWTH, LossScale, loss_scale_of
from pipeline.train.step import update
from tests.conftest import tiers

CPU = torch.device("cpu")
FLOAT16 = torch.autocast("cpu", dtype=torch.float16)
HALF = Placement(precision="float16")


@given(overflows=st.lists(st.booleans(), min_size=1, max_size=40), every=st.integers(1, 4))
def test_the_scale_moves_as_that_of_torch(overflows: list[bool], every: int) -> None:
    scale, theirs = LossScale(CPU), torch.full((), FIRST)
    value, steps = scale.value, scale.steps
    tracker = torch.zeros((), dtype=torch.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_scale, "GROWS_AFTER", every)
        for overflowed in overflows:
            found = torch.tensor(float(overflowed))
            scale.follow(found)
            torch._amp_update_scale_(theirs, tracker, found, GROWTH, BACKOFF, every)
            assert scale.value == theirs and scale.steps == tracker
    assert scale.value is value and scale.steps is steps, "a recorded step reads these tensors"


@pytest.mark.parametrize("chosen", [AdamW(), Lamb(), StableAdamW()])
def test_a_scaled_step_is_the_step_without_a_scale(chosen: AdamW) -> None:
    torch.manual_seed(0)
    one, other, scale = nn.Linear(3, 2), nn.Linear(3, 2), LossScale(CPU)
    other.load_state_dict(one.state_dict())
    plain, scaled = build_optimizer(chosen, one), build_optimizer(chosen, other)
    for number in range(3):
        inputs = torch.full((1, 3), number + 1.0)
        one(inputs).square().sum().backward()
        (other(inputs).square().sum() * scale.value).backward()
        norm = update(plain, one, rate=0.1, clip_norm=0.5)
        assert update(scaled, other, rate=0.1, clip_norm=0.5, scale=scale).item() == pytest.approx(
            norm.item(), rel=1e-6
        )
        assert norm > 0.5, "clipped"
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_an_overflow_changes_only_the_scale() -> None:
    module, scale = nn.Linear(3, 2), LossScale(CPU)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    optimizer = build_optimizer(AdamW(), module)
    (module(torch.ones(1, 3)).sum() * scale.value * math.inf).backward()
    assert not update(optimizer, module, rate=0.1, clip_norm=1.0, scale=scale).isfinite()
    assert scale.value == FIRST / 2
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    (module(torch.ones(1, 3)).sum() * scale.value).backward()
    assert update(optimizer, module, rate=0.1, clip_norm=1.0, scale=scale).isfinite() and scale.steps == 1
    assert not torch.equal(before["weight"], module.weight)


def test_checkpoints_have_the_scale() -> None:
    module, again = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer, other = build_optimizer(AdamW(), module), build_optimizer(AdamW(), again)
    scale = loss_scale_of(optimizer, FLOAT16, CPU)
    assert scale is not None and loss_scale_of(optimizer, FLOAT16, CPU) is scale
    for overflowed in (1.0, 0.0, 0.0):
        scale.follow(torch.tensor(overflowed))
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    load_optimizer(other, again, optimizer_tensors(optimizer, module))
    loaded = loss_scale_of(other, FLOAT16, CPU)
    scale.follow(torch.tensor(1.0))
    assert loaded is not None and (loaded.value, loaded.steps) == (FIRST / 2, 2)
    assert loss_scale_of(other, torch.autocast("cpu"), CPU) is None, "a run that goes on in bfloat16"


@tiers("family_config", first=("bert",), second=("electra", "modernbert", "deberta-v2"))
def test_a_run_in_float16_learns_as_in_float32(training, family_config: Pretrain, tmp_path: Path) -> None:
    config = replace(family_config, steps=8)
    full: dict[int, dict[str, float]] = {}
    half: dict[int, dict[str, float]] = {}
    training.run(config, tmp_path / "full", full)
    training.run(replace(config, placement=HALF), tmp_path / "half", half)
    skipped = sum(metrics.get("train/nonfinite_steps", 0.0) for metrics in half.values())
    # Tokens that a generator draws differ, and with them the discriminator's loss.
    tolerance = 0.05 if family_config.objective != Masked() or skipped else 0.01
    assert skipped < 4 and half[8]["train/loss"] == pytest.approx(full[8]["train/loss"], rel=tolerance)


def test_a_stopped_run_in_float16_goes_on_exactly(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    config = replace(tiny_config, placement=HALF, checkpoint=Checkpoints(every=5), tracking=Tracking(every=3))
    whole: dict[int, dict[str, float]] = {}
    _, module = training.run(config, tmp_path / "whole", whole)
    with pytest.raises(KeyboardInterrupt):
        training.run(config, tmp_path / "stopped", {}, stop_at=9)
    second: dict[int, dict[str, float]] = {}
    _, again = training.run(config, tmp_path / "stopped", second)
    assert second[12]["train/loss"] == whole[12]["train/loss"]
    for (name, mine), (_, theirs) in zip(module.state_dict().items(), again.state_dict().items(), strict=True):
        assert torch.equal(mine, theirs), name


def test_a_run_in_float16_goes_on_after_overflows(
    training, tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_scale, "FIRST", 2.0**30)
    logged: dict[int, dict[str, float]] = {}
    training.run(replace(tiny_config, steps=30, placement=HALF), tmp_path, logged)
    skipped = [step for step, metrics in logged.items() if metrics.get("train/nonfinite_steps")]
    assert skipped[:6] == [1, 2, 3, 4, 5, 6] and len(skipped) < 20
    trained = [metrics["train/loss"] for step, metrics in sorted(logged.items()) if "train/loss" in metrics]
    assert trained[-1] < trained[0]
