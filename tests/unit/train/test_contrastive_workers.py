"""One contrastive training on two and on four workers against the same on one."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from pipeline.batch import Batch
from pipeline.config.objective import Contrastive
from pipeline.config.training import AdamW
from pipeline.evaluation.evaluate import baselines, evaluate
from pipeline.evaluation.gather import gather_slots
from pipeline.optim.build import build_optimizer
from pipeline.train.step import StepContext, distributed, train_step
from tests.ranks import Ranks
from tests.unit.objectives.test_contrastive import CPU, PLAIN, make_model, make_rows

STEPS, SLOTS = 3, 5
"""Five slots per step, so that workers have unequal numbers of slots."""


def slots_of(step: int) -> list[Batch]:
    """The slots of a step."""
    return [make_rows(3, seed=10 * step + slot) for slot in range(SLOTS)]


def losses_of(rank: int, world: int, pooling: str = "mean") -> list[dict[str, float]]:
    """Train on a rank's slots; return each step's loss over all ranks and gradient norm, and last the held-out metrics.

    Three held-out batches leave a fourth rank without any.
    """
    module = make_model(Contrastive(pooling=pooling))
    objective, optimizer = distributed(module, CPU, world), build_optimizer(AdamW(learning_rate=1e-2), module)
    compute, found = StepContext(device=CPU, autocast=PLAIN, seed=7, rank=rank, world=world), []
    for step in range(STEPS):
        own, counts = list(enumerate(slots_of(step)))[rank::world], {"contrastive": 3 * SLOTS}
        sums, norm = train_step(objective, optimizer, own, counts, compute, step=step, rate=1e-2, clip_norm=1.0)
        for total in sums.values() if world > 1 else ():
            dist.all_reduce(total)
        found.append({term: total.item() for term, total in sums.items()} | {"norm": norm.item()})
    heldout = [make_rows(rows, seed=99 + rows) for rows in (4, 2, 3)][rank::world]
    scores = evaluate(module, heldout, world=world, device=CPU, autocast=PLAIN)
    return [*found, scores | baselines(module, heldout, torch.zeros(0).numpy(), world)]


@pytest.mark.parametrize(
    ("world", "pooling"), [(2, "mean"), (2, "attention"), pytest.param(4, "mean", marks=pytest.mark.second)]
)
def test_every_world_has_the_losses_of_one_worker(ranks: Callable[[int], Ranks], world: int, pooling: str) -> None:
    (found, *_), alone = ranks(world).run(losses_of, world, pooling), losses_of(0, 1, pooling)
    assert len(found) == STEPS + 1 and found[0].keys() == {"contrastive", "norm"} and len(found[-1]) == 4
    for several, one in zip(found, alone, strict=True):
        assert several == pytest.approx(one, rel=1e-5)


def test_slots_are_gathered_in_their_order_by_hand() -> None:
    own = {2: torch.tensor([[5.0]]), 0: torch.tensor([[1.0], [2.0]])}
    rows, places = gather_slots(own, torch.zeros(0, 1), 1)
    assert rows.tolist() == [[1.0], [2.0], [5.0]] and places == {0: slice(0, 2), 2: slice(2, 3)}
    assert gather_slots({}, torch.zeros(0, 1), 1)[0].shape == (0, 1)
