"""One distillation of text vectors on two and on three workers against the same on one."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from pipeline.batch import Batch
from pipeline.config.training import AdamW
from pipeline.evaluation.evaluate import baselines, evaluate
from pipeline.optim.build import build_optimizer
from pipeline.train.step import StepContext, distributed, train_step
from tests.ranks import Ranks
from tests.unit.objectives.test_distilled_vectors import CPU, PLAIN, make_student, texts_of

STEPS, SLOTS = 3, 4
"""Four slots per step, so that three workers have unequal numbers of slots."""


def slots_of(step: int) -> list[Batch]:
    """The slots of a step."""
    return [texts_of([6, 9 + slot, 12], seed=10 * step + slot) for slot in range(SLOTS)]


def losses_of(rank: int, world: int) -> list[dict[str, float]]:
    """Train on a rank's slots; return each step's loss over all ranks and gradient norm, and last the held-out metrics.

    Two held-out batches leave a third rank without any.
    """
    student = make_student().train()
    objective, optimizer = distributed(student, CPU, world), build_optimizer(AdamW(learning_rate=1e-2), student)
    compute, found = StepContext(device=CPU, autocast=PLAIN, seed=7, rank=rank, world=world), []
    for step in range(STEPS):
        own = list(enumerate(slots_of(step)))[rank::world]
        counts = {"vectors": 3 * SLOTS}
        sums, norm = train_step(objective, optimizer, own, counts, compute, step=step, rate=1e-2, clip_norm=1.0)
        for total in sums.values() if world > 1 else ():
            dist.all_reduce(total)
        found.append({term: total.item() for term, total in sums.items()} | {"norm": norm.item()})
    heldout = [texts_of([5] * rows, seed=99 + rows) for rows in (4, 2)][rank::world]
    scores = evaluate(student, heldout, world=world, device=CPU, autocast=PLAIN)
    return [*found, scores | baselines(student, heldout, torch.zeros(0).numpy(), world)]


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.second)])
def test_every_world_has_the_losses_of_one_worker(ranks: Callable[[int], Ranks], world: int) -> None:
    (found, *_), alone = ranks(world).run(losses_of, world), losses_of(0, 1)
    assert len(found) == STEPS + 1 and found[0].keys() == {"vectors", "norm"} and len(found[-1]) == 2
    for several, one in zip(found, alone, strict=True):
        assert several == pytest.approx(one, rel=1e-5)
