"""One distillation on two workers against the same on one."""

from collections.abc import Callable

import pytest
import torch.distributed as dist

from pipeline.batch import Batch
from pipeline.config.training import AdamW
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.train.step import StepContext, distributed, train_step
from tests.ranks import Ranks
from tests.unit.objectives.batches import make_batch
from tests.unit.objectives.test_distilled import CPU, PLAIN, make_student

STEPS, SLOTS = 3, 3
"""Three slots per step, so that the second worker has fewer than the first."""


def slots_of(step: int) -> list[Batch]:
    """The slots of a step."""
    return [make_batch([6, 9 + slot, 12], seed=10 * step + slot) for slot in range(SLOTS)]


def losses_of(rank: int, world: int) -> list[dict[str, float]]:
    """Train on a rank's slots; return the sums of each step's terms over all ranks, and the gradient norm."""
    student = make_student().train()
    objective, optimizer = distributed(student, CPU, world), build_optimizer(AdamW(learning_rate=1e-2), student)
    compute, found = StepContext(device=CPU, autocast=PLAIN, seed=7, rank=rank, world=world), []
    for step in range(STEPS):
        batches = slots_of(step)
        counts = {term: sum(student.counts(batch)[term] for batch in batches) for term in student.terms}
        own = list(enumerate(batches))[rank::world]
        shares = divisors(counts, student.weights)
        sums, norm = train_step(objective, optimizer, own, shares, compute, step=step, rate=1e-2, clip_norm=1.0)
        for total in sums.values() if world > 1 else ():
            dist.all_reduce(total)
        found.append({term: total.item() for term, total in sums.items()} | {"norm": norm.item()})
    return found


def test_two_workers_have_the_losses_of_one(ranks: Callable[[int], Ranks]) -> None:
    (found, _), alone = ranks(2).run(losses_of, 2), losses_of(0, 1)
    assert len(found) == STEPS and found[0].keys() == {"soft", "mlm", "cosine", "norm"}
    for two, one in zip(found, alone, strict=True):
        assert two == pytest.approx(one, rel=1e-5)
