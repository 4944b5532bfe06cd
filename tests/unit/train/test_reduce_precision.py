"""Gradients that two workers add up in bfloat16 and in float32."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from pipeline.objectives.terms import divisors
from pipeline.train.step import StepContext, backward, distributed
from tests.ranks import Ranks
from tests.unit.objectives.batches import make_batch
from tests.unit.objectives.test_distilled import CPU, PLAIN, make_student

Precision = Literal["float32", "bfloat16"]


def gradients(rank: int, world: int, precision: Precision) -> dict[str, Tensor]:
    """Return the gradients of a step of two slots, summed over ranks."""
    student = make_student().train()
    objective = distributed(student, CPU, world, reduce_precision=precision)
    compute = StepContext(device=CPU, autocast=PLAIN, seed=7, rank=rank, world=world)
    batches = [make_batch([6, 9], seed=0), make_batch([12, 7, 3], seed=1)]
    counts = {term: sum(student.counts(batch)[term] for batch in batches) for term in student.terms}
    own = list(enumerate(batches))[rank::world]
    backward(objective, own, divisors(counts, student.weights), compute, step=0)
    return {name: weight.grad for name, weight in student.named_parameters() if weight.grad is not None}


def worker(rank: int, folder: str) -> None:
    """Write the gradients of one of two workers, in both number formats."""
    torch.save([gradients(rank, 2, "float32"), gradients(rank, 2, "bfloat16")], Path(folder, f"{rank}.pt"))


def test_gradients_are_added_up_in_bfloat16(tmp_path: Path, ranks: Callable[[int], Ranks]) -> None:
    ranks(2).run(worker, str(tmp_path))
    (full, half), (_, other) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    alone = gradients(0, 1, "bfloat16")
    assert full.keys() == half.keys() == alone.keys()
    differing = 0
    for name, gradient in half.items():
        assert torch.equal(gradient, other[name]), "both workers have the same sum"
        torch.testing.assert_close(full[name], alone[name], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient, full[name], rtol=0.01, atol=0.01 * full[name].abs().max().item())
        assert torch.equal(gradient, gradient.bfloat16().float()), "each sum is a number of bfloat16"
        differing += not torch.equal(gradient, full[name])
    assert differing > len(half) / 2
