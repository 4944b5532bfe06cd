"""Budgets of one training step on a CUDA device that computes nothing, run by test_gpu_path.py.

Counted are kernels, casts between number formats, bytes that kernels read and write, and the most memory at a time. A
step that needs 2% more than its budget fails.
"""

from dataclasses import dataclass, replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipeline.bench.cases import VOCABULARY_SIZE, Case, make_batch
from pipeline.config.jobs import Pretrain
from pipeline.config.model import FamilyName
from pipeline.config.training import AdamW, Lamb, Muon, StableAdamW
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.table import build_objective
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.train.slot_size import slot_operators
from pipeline.train.step import StepContext, train_step, update
from tests.conftest import tiny_preset
from tests.cuda.device import CUDA, move, on_device
from tests.cuda.steps import batch_of

VIEWS = {"alias", "as_strided", "chunk", "detach", "device", "empty", "empty_like", "empty_strided", "expand"}
VIEWS |= {"lift_fresh", "new_empty", "new_empty_strided", "permute", "_reshape_alias", "reshape", "select", "size"}
VIEWS |= {"slice", "split", "split_with_sizes", "squeeze", "stride", "sym_size", "t", "transpose", "unbind", "unfold"}
VIEWS |= {"unsqueeze", "_unsafe_view", "view"}
"""Operators that launch no kernel."""
TOLERANCE = 1.02


@dataclass(kw_only=True)
class Figures:
    """Counts of one training step."""

    kernels: int = 0
    casts: int = 0
    """Kernels that only convert a tensor to another number format."""
    moved: int = 0
    """Bytes of all inputs and outputs of kernels."""
    peak: int = 0
    """Most bytes of tensors on the device at a time."""


class Count(TorchDispatchMode):
    """Count the kernels of operators with a tensor on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.figures = Figures()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func._schema.name in OPDEFS:  # an operator of our own: what it calls is counted
            with self:
                return OPDEFS[func._schema.name]._init_fn(*args, **(kwargs or {}))
        out, name = func(*args, **(kwargs or {})), func._schema.name.split("::")[1]
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        made = [value for value in tree_leaves(out) if isinstance(value, Tensor)]
        on = [tensor for tensor in given + made if tensor.is_cuda]
        if on and name not in VIEWS:
            self.figures.kernels += 1
            self.figures.casts += name == "_to_copy" and made[0].dtype != given[0].dtype
            self.figures.moved += sum(tensor.numel() * tensor.element_size() for tensor in on)
        return out


def figures_of(rows: int, layers: int, **chosen: bool) -> Figures:
    """Count the second step of bert-base with one slot of full rows of 128 tokens, in bfloat16, eager, with AdamW.

    `chosen` are attributes of the encoder.
    """
    case = Case(size="base", rows=rows, length=128, lengths="full", attention_dropout=False)
    batch, model = make_batch(case, seed=0), replace(case.model, layers=layers)
    compute = StepContext(device=CUDA, autocast=torch.autocast("cuda", dtype=torch.bfloat16), seed=0)
    module = MaskedTokens(model, VOCABULARY_SIZE)
    for name, value in chosen.items():
        setattr(module.encoder, name, value)
    with on_device():
        move(module)
        optimizer, counts = build_optimizer(AdamW(), module), divisors(module.counts(batch), module.weights)
        memory = MemTracker()
        memory.track_external(module, optimizer)
        with memory:
            for step in range(2):
                memory.reset_mod_stats()
                with Count() as count:
                    train_step(module, optimizer, [(0, batch)], counts, compute, step=step, rate=1e-4, clip_norm=1.0)
    return replace(count.figures, peak=memory.get_tracker_snapshot("peak")[CUDA]["Total"])


NARROW, RECOMPUTE = {"narrow_residual": True}, {"recompute": True}
BUDGETS = {
    "two layers": (32, 2, {}, Figures(kernels=259, casts=67, moved=6_117_325_240, peak=1_061_673_984)),
    "two layers, 256 rows": (256, 2, {}, Figures(kernels=281, casts=67, moved=32_400_000_000, peak=3_600_000_000)),
    "two layers, bfloat16 sums": (
        32,
        2,
        NARROW,
        Figures(kernels=261, casts=69, moved=5_598_906_808, peak=1_030_228_992),
    ),
    "32 rows": (32, 12, {}, Figures(kernels=839, casts=287, moved=19_198_515_240, peak=3_251_841_024)),
    "32 rows, bfloat16 sums": (
        32,
        12,
        NARROW,
        Figures(kernels=861, casts=309, moved=16_289_527_848, peak=3_094_628_352),
    ),
    "256 rows": (256, 12, {}, Figures(kernels=861, casts=287, moved=118_232_722_052, peak=14_175_321_088)),
    "256 rows, recomputed": (
        256,
        12,
        RECOMPUTE,
        Figures(kernels=1_137, casts=407, moved=153_400_000_000, peak=4_080_000_000),
    ),
    "256 rows, recomputed without products": (
        256,
        12,
        RECOMPUTE | {"recompute_products": False},
        Figures(kernels=1_065, casts=407, moved=141_100_000_000, peak=9_770_000_000),
    ),
}
"""Rows per slot, layers, attributes of the encoder, and the counts when the budget was last set."""


@pytest.mark.parametrize("name", BUDGETS)
def test_a_step_of_base_keeps_its_budget(name: str) -> None:
    rows, layers, chosen, budget = BUDGETS[name]
    found = figures_of(rows, layers, **chosen)
    print(
        f"\nbase, {name}: {found.kernels:,} kernels, {found.casts} casts, {found.moved / 1e9:.1f} GB moved, "
        f"at most {found.peak / 1e9:.2f} GB at a time"
    )
    for figure, most in vars(budget).items():
        assert getattr(found, figure) <= TOLERANCE * most, figure


UPDATES = ((AdamW(), 22), (Lamb(), 57), (StableAdamW(), 88), (Muon(), 161))
"""Optimiser, and the kernels of an update when the budget was last set."""


def test_updates_of_twelve_layers_keep_their_budgets() -> None:
    preset, found = tiny_preset("modernbert"), {}
    model = replace(preset.model, layers=12, width=384, heads=6, feed_forward=1_024)
    module = build_objective(preset.objective, preset.sampling, model, 8_192)
    with on_device():
        move(module)
        for chosen, _ in UPDATES:
            optimizer = build_optimizer(chosen, module)
            for _ in range(2):
                for parameter in module.parameters():
                    parameter.grad = torch.empty_like(parameter)
                with Count() as count:
                    update(optimizer, module, rate=1e-4, clip_norm=1.0)
            found[type(chosen).__name__] = count.figures.kernels
    print(f"\nkernels of an update: {found}")
    for chosen, budget in UPDATES:
        assert found[type(chosen).__name__] <= TOLERANCE * budget


def kernels_of(config: Pretrain, slots: int) -> int:
    """Count the kernels of the second step with this many slots."""
    module = build_objective(config.objective, config.sampling, config.model, config.vocabulary.size)
    batch = batch_of()
    counts = divisors(module.counts(batch), module.weights)
    compute = StepContext(device=CUDA, autocast=torch.autocast("cuda", dtype=torch.bfloat16), seed=0)
    with on_device():
        move(module)
        optimizer, dealt = build_optimizer(AdamW(), module), [(slot, batch) for slot in range(slots)]
        for step in range(2):
            with Count() as count:
                train_step(module, optimizer, dealt, counts, compute, step=step, rate=1e-4, clip_norm=1.0)
    return count.figures.kernels


@pytest.mark.parametrize("family", get_args(FamilyName))
def test_a_slot_has_about_the_operators_that_a_plan_counts(family: str) -> None:
    preset = tiny_preset(family)
    config = replace(preset, model=replace(preset.model, hidden_dropout=0.1, attention_dropout=0.0))
    found = kernels_of(config, 2) - kernels_of(config, 1)
    print(f"\n{family}: {found} kernels for a slot, {slot_operators(config)} by the plan")
    assert slot_operators(config) == pytest.approx(found, rel=0.12)
