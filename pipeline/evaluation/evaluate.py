"""Held-out losses on fixed examples, and the objective's baselines on the same examples."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist

from pipeline.batch import Batch
from pipeline.config.training import EVALUATED_WINDOWS
from pipeline.evaluation.gather import gather_slots
from pipeline.objectives.table import Pretraining
from pipeline.objectives.terms import Sums

SEED = 0  # seed of held-out examples in every run, so that runs are compared on the same pairs and masks
UNIGRAM_CHARACTERS = 2_000_000  # approximate characters of training text for counting vocabulary entries

Window = TypeVar("Window")


def heldout_shares(
    windows: Sequence[Window], examples: int, rank: int, world: int
) -> Iterator[tuple[int, Window, int]]:
    """Yield (index, window, examples to take from it) for the held-out windows of a rank.

    `examples` is the number for all ranks together. The rank reads the windows rank::world, so all ranks together have
    the same examples for any number of ranks (`world`).
    """
    read = windows[: min(examples, EVALUATED_WINDOWS)]
    for index in range(rank, len(read), world):
        yield index, read[index], -(-examples // len(read))


def evaluate(
    module: Pretraining, batches: Sequence[Batch], *, world: int, device: torch.device, autocast: torch.autocast
) -> dict[str, float]:
    """Return held-out metrics of the module in evaluation mode: losses in nats, accuracies from 0 to 1.

    Each metric is a mean over the batches of all ranks; every rank must call this function. Empty without held-out
    rows.
    """
    was_training = module.training
    module.eval()
    if module.two_passes:
        sums = _compare_all(module, batches, world, device, autocast)
    else:
        sums = _sum_scores(module, batches, world, device, autocast)
    module.train(was_training)
    return {f"heldout/{name}": mean for name, mean in module.heldout(sums).items()}


def _sum_scores(
    module: Pretraining,
    batches: Sequence[Batch],
    world: int,
    device: torch.device,
    autocast: torch.autocast,
) -> Sums:
    """Return the sums of the scores of the batches of all ranks."""
    # A rank without held-out rows never calls module.scores, but all ranks need the same names.
    names = module.score_names
    totals = dict.fromkeys(names, torch.zeros((), dtype=torch.float64, device=device))
    counts = dict(totals)
    with torch.inference_mode(), autocast:
        for batch in batches:
            for name, (total, count) in module.scores(batch.to(device)).items():
                totals[name] = totals[name] + total
                counts[name] = counts[name] + count
    sums = torch.stack([torch.stack(list(totals.values())), torch.stack(list(counts.values()))], dim=1)
    return _over_ranks(dict(zip(names, sums.tolist(), strict=True)), world)


def _compare_all(
    module: Pretraining, batches: Sequence[Batch], world: int, device: torch.device, autocast: torch.autocast
) -> Sums:
    """Return the sums of the scores of the rows of all ranks; each row is compared with all others."""
    with torch.inference_mode(), autocast:
        texts = {number: module(batch.to(device)) for number, batch in enumerate(batches)}
    none = torch.zeros(0, 2 + module.negatives, module.encoder.settings.width, device=device)
    return module.scores(_of_all_ranks(texts, none, world), _all_keys(module, batches, world).to(device))


def _all_keys(module: Pretraining, batches: Sequence[Batch], world: int) -> torch.Tensor:
    """Return the keys of the rows of all ranks, as in Batch.keys, on the CPU."""
    keys = {number: batch.keys for number, batch in enumerate(batches) if batch.keys is not None}
    return _of_all_ranks(keys, torch.zeros(0, 3 + module.negatives, dtype=torch.int64), world)


def _of_all_ranks(own: Mapping[int, torch.Tensor], like: torch.Tensor, world: int) -> torch.Tensor:
    """Return the rows of all ranks, rank by rank.

    `own` has the rows of this rank's batches. `like` is a tensor without rows, as in `gather_slots`.
    """
    rank = dist.get_rank() if world > 1 else 0
    return gather_slots({rank: torch.cat([like, *own.values()])}, like, world)[0]


def _over_ranks(sums: Mapping[str, Sequence[float]], world: int) -> dict[str, tuple[float, float]]:
    """Return (sum, count) by name, added up over all ranks; all ranks must pass the same names in the same order."""
    table = torch.tensor(list(sums.values()), dtype=torch.float64).view(-1, 2)
    if world > 1:
        dist.all_reduce(table)
    return {name: (total, count) for name, (total, count) in zip(sums, table.tolist(), strict=True)}


def baselines(module: Pretraining, batches: Sequence[Batch], counts: np.ndarray, world: int) -> dict[str, float]:
    """Return the objective's baselines on the rows that `evaluate` scores, over all ranks; every rank must call it.

    `counts` (V,) are the entries' occurrences in training text.
    """
    if module.two_passes:
        return module.baselines(_all_keys(module, batches, world))
    return module.baselines(_over_ranks(module.baseline_sums(batches, counts), world))


def baseline_metrics(values: Mapping[str, float]) -> dict[str, float]:
    """Return baselines under their metric names, with heldout_ in front.

    MLflow sorts chart groups by name, so the baselines (heldout_baseline/) come after the measured values (heldout/).
    """
    return {f"heldout_{name}": value for name, value in values.items()}
