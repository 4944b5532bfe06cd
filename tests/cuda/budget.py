"""Budgets of one training step on a CUDA device that computes nothing, run by test_gpu_path.py.

Counted are kernels, casts between number formats, and bytes that kernels read and write. A step that needs 5% more than
its budget fails.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipeline.bench.cases import VOCABULARY_SIZE, Case, make_batch
from pipeline.config.training import AdamW
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.terms import divisors
from pipeline.train.optim import build_optimizer
from pipeline.train.step import Compute, train_step
from tests.cuda.device import CUDA, move, on_device

VIEWS = {"alias", "as_strided", "chunk", "detach", "device", "empty", "empty_like", "empty_strided", "expand"}
VIEWS |= {"lift_fresh", "new_empty", "new_empty_strided", "permute", "_reshape_alias", "reshape", "select", "size"}
VIEWS |= {"slice", "split", "split_with_sizes", "squeeze", "stride", "sym_size", "t", "transpose", "unbind", "unfold"}
VIEWS |= {"unsqueeze", "_unsafe_view", "view"}
"""Operators that launch no kernel."""
TOLERANCE = 1.05


@dataclass(kw_only=True)
class Figures:
    """Counts of one training step."""

    kernels: int = 0
    casts: int = 0
    """Kernels that only convert a tensor to another number format."""
    moved: int = 0
    """Bytes of all inputs and outputs of kernels."""


class Count(TorchDispatchMode):
    """Count the kernels of operators with a tensor on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.figures = Figures()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        out, name = func(*args, **(kwargs or {})), func._schema.name.split("::")[1]
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        made = [value for value in tree_leaves(out) if isinstance(value, Tensor)]
        on = [tensor for tensor in given + made if tensor.is_cuda]
        if on and name not in VIEWS:
            self.figures.kernels += 1
            self.figures.casts += name == "_to_copy" and made[0].dtype != given[0].dtype
            self.figures.moved += sum(tensor.numel() * tensor.element_size() for tensor in on)
        return out


def figures_of(size: str, rows: int, *, narrow_residual: bool = False) -> Figures:
    """Count the second step of a BERT with one slot of full rows of 128 tokens, in bfloat16, eager, with AdamW."""
    case = Case(size=size, rows=rows, length=128, lengths="full", attention_dropout=False)
    batch, model = make_batch(case, seed=0), replace(case.model, attention_dropout=0.0)
    compute = Compute(device=CUDA, autocast=torch.autocast("cuda", dtype=torch.bfloat16), seed=0)
    module = MaskedTokens(model, VOCABULARY_SIZE)
    module.encoder.narrow_residual = narrow_residual
    with on_device():
        move(module)
        optimizer, counts = build_optimizer(AdamW(), module), divisors(module.counts(batch), module.weights)
        for step in range(2):
            with Count() as count:
                train_step(module, optimizer, [(0, batch)], counts, compute, step=step, rate=1e-4, clip_norm=1.0)
    return count.figures


BUDGET = Figures(kernels=970, casts=295, moved=18_911_693_276)
"""Counts of a step of base with 32 rows when the budget was last set."""
NARROW_BUDGET = Figures(kernels=992, casts=317, moved=16_002_705_884)
"""The same with residual sums in bfloat16."""


@pytest.mark.parametrize(("narrow", "budget"), [(False, BUDGET), (True, NARROW_BUDGET)])
def test_a_step_of_base_keeps_its_budget(narrow: bool, budget: Figures) -> None:
    found = figures_of("base", 32, narrow_residual=narrow)
    print(f"base, 32 rows: {found.kernels} kernels, {found.casts} casts, {found.moved / 1e9:.1f} GB moved")
    for name, most in vars(budget).items():
        assert getattr(found, name) <= TOLERANCE * most, name
