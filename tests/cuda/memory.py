"""Peak memory of whole steps on a CUDA device that computes nothing, beside the formula. Run by test_gpu_path.py."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

from pipeline.bench.cases import Case, make_batch
from pipeline.config.jobs import Pretrain
from pipeline.config.model import FamilyName
from pipeline.config.phases import OnePhase
from pipeline.config.placement import Placement
from pipeline.config.training import AdamW, Batch
from pipeline.model.encoder import encoders_in
from pipeline.objectives.table import build_objective
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.train.slot_memory import TOKEN_BYTES, step_bytes
from pipeline.train.step import StepContext, train_step
from tests.conftest import tiny_preset
from tests.cuda.device import CUDA, move, on_device

SHAPES = {
    "small": {"layers": 2, "width": 192, "heads": 6, "feed_forward": 768},
    "deep": {"layers": 5, "width": 256, "heads": 4, "feed_forward": 640},
}
ROWS = 8_192
"""Tokens of a slot."""


def config_of(family: FamilyName, shape: str) -> Pretrain:
    """The tiny preset of a family in another shape, with dropout, whose slots have ROWS tokens."""
    preset = tiny_preset(family)
    length = 1_024 if family in ("longformer", "bigbird") else 256
    model = replace(preset.model, **SHAPES[shape], hidden_dropout=0.1, maximum_positions=1_024)
    rows = ROWS // length
    return replace(
        preset,
        model=model,
        sampling=replace(preset.sampling, maximum_length=length),
        batch=Batch(rows_per_step=rows, rows_per_slot=rows),
        phases=OnePhase(),
    )


def peak_bytes(config: Pretrain) -> int:
    """Return the most bytes at a time of the second step with one slot of full rows, in bfloat16 and eager code."""
    (phase,), size = config.all_phases, config.vocabulary.size
    family = "deberta" if config.model.family == "deberta-v2" else config.model.family  # both have rows without pairs
    case = Case(
        size="tiny", rows=phase.batch.slot_rows, length=phase.sampling.row_length, lengths="full",
        attention_dropout=True, family=family, vocabulary_size=size,
    )  # fmt: skip
    batch, module = make_batch(case, 0), build_objective(config.objective, config.sampling, config.model, size)
    for parameter in module.parameters():
        parameter.requires_grad_(True)  # the tracker watches the gradients of all
    for encoder in encoders_in(module):
        encoder.recompute = config.placement.recompute
    counts = divisors(module.counts(batch), module.weights)
    compute = StepContext(device=CUDA, autocast=torch.autocast("cuda", dtype=torch.bfloat16), seed=0)
    with on_device():
        move(module)
        optimizer, memory = build_optimizer(AdamW(), module), MemTracker()
        memory.track_external(module, optimizer)
        with memory:
            for step in range(2):
                memory.reset_mod_stats()
                train_step(module, optimizer, [(0, batch)], counts, compute, step=step, rate=1e-4, clip_norm=1.0)
    return memory.get_tracker_snapshot("peak")[CUDA]["Total"]


def require_near(config: Pretrain) -> None:
    phase = config.all_phases[0]
    found, formula = peak_bytes(config), step_bytes(config, phase, phase.batch.slot_rows)
    print(f"\n{config.model.family}: {found / 1e6:,.0f} MB at a time, {formula / 1e6:,.0f} by the formula")
    assert formula == pytest.approx(found, rel=0.1)


def test_every_family_has_a_formula() -> None:
    assert TOKEN_BYTES.keys() == set(get_args(FamilyName))


@pytest.mark.parametrize(("family", "shape"), [(family, shape) for family in get_args(FamilyName) for shape in SHAPES])
def test_the_formula_is_within_ten_percent_of_the_count(family: FamilyName, shape: str) -> None:
    require_near(config_of(family, shape))


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_the_formula_of_recomputed_layers(family: FamilyName) -> None:
    require_near(replace(config_of(family, "deep"), placement=Placement(recompute=True)))
