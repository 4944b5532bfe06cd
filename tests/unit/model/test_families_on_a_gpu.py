"""Losses and gradients of all families on a GPU, compared with the same step on a CPU in float32."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import Tensor

from pipeline.batch import Batch
from pipeline.bench.cases import Case, make_batch
from pipeline.bench.step import LONG_FAMILIES
from pipeline.config.model import FamilyName
from pipeline.objectives.table import Pretraining, build_objective

LONG = 1_024
"""Length at which attention is in windows and blocks."""
SAMPLING = ("electra",)
"""Families whose losses depend on sampled tokens, of which a few differ between devices."""
CASES = [(family, 128) for family in get_args(FamilyName)] + [(family, LONG) for family in LONG_FAMILIES]


def module_and_batch(family: FamilyName, length: int) -> tuple[Pretraining, Batch]:
    rows, lengths = (2, "full") if length == LONG else (8, "ragged")
    case = Case(size="tiny", rows=rows, length=length, lengths=lengths, attention_dropout=False, family=family)
    torch.manual_seed(0)
    model = replace(case.model, hidden_dropout=0.0)
    module = build_objective(case.preset.objective, case.preset.sampling, model, case.vocabulary_size)
    return module, make_batch(case, seed=0)


def losses_and_gradients(module: Pretraining, batch: Batch, autocast: torch.autocast) -> tuple[Tensor, Tensor]:
    """Return the losses and the gradients, each in one vector."""
    module.zero_grad()
    torch.manual_seed(0)
    with autocast:
        losses = torch.stack([total for total, _ in module(batch).values()])
    losses.sum().backward()
    gradients = [weight.grad.flatten() for weight in module.parameters() if weight.grad is not None]
    return losses.detach().float().cpu(), torch.cat(gradients).cpu()


def difference(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("family", "length"), CASES)
def test_a_gpu_has_the_losses_and_gradients_of_a_cpu(family: FamilyName, length: int) -> None:
    module, batch = module_and_batch(family, length)
    wanted = losses_and_gradients(module, batch, torch.autocast("cpu", enabled=False))
    module.to("cuda")
    for precision, most in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        autocast = torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == torch.bfloat16)
        found = losses_and_gradients(module, batch.to(torch.device("cuda")), autocast)
        losses, gradients = map(difference, found, wanted)
        print(f"{family} at {length}, {precision}: losses {losses:.1e}, gradients {gradients:.1e}")
        most = 5e-2 if family in SAMPLING else most
        assert losses < most / 20 and gradients < most
