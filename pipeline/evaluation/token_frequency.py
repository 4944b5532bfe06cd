"""Held-out masked loss, grouped by the frequency of the masked token in the training text.

Shapes: M masked positions, V vocabulary entries, G groups of frequency.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional as F

from pipeline.batch import MaskedBatch
from pipeline.objectives.table import Pretraining

EDGES = (1, 10, 100, 1_000, 10_000)
"""Boundaries between groups, in occurrences per million tokens."""
GROUPS = (f"below {EDGES[0]}", *(f"{edge:,} to {10 * edge:,}" for edge in EDGES[:-1]), f"above {EDGES[-1]:,}")


@dataclass(frozen=True, kw_only=True)
class LossByFrequency:
    """Mean losses at masked positions, grouped by the masked token's frequency; empty groups are left out."""

    groups: tuple[str, ...]
    """Names of the groups, from rare to frequent."""
    counts: np.ndarray
    """int64 (G,): masked positions."""
    model: np.ndarray
    """float64 (G,): mean loss of the model, in nats."""
    unigram: np.ndarray
    """float64 (G,): mean loss of guessing by frequency alone, in nats."""
    accuracy: np.ndarray
    """float64 (G,): share of positions at which the model's best guess is right."""


def heldout_loss_by_frequency(
    module: Pretraining,
    batches: Sequence[MaskedBatch],
    counts: np.ndarray,
    *,
    world: int,
    device: torch.device,
    autocast: torch.autocast,
) -> LossByFrequency:
    """Return the losses on the batches of all ranks, by frequency; every rank must call this function.

    `counts` int64 (V,) are the occurrences of each vocabulary entry in training text.
    """
    was_training = module.training
    module.eval()
    with autocast:
        sums = torch.from_numpy(group_sums(*_position_losses(module, [batch.to(device) for batch in batches]), counts))
    module.train(was_training)
    if world > 1:
        dist.all_reduce(sums)
    return of_sums(sums.numpy())


def _position_losses(module: Pretraining, batches: Sequence[MaskedBatch]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the loss float64 (M,), the correctness bool (M,) and the label int64 (M,) of every masked position.

    For replaced tokens (ELECTRA), the losses are the generator's.
    """
    losses, right, labels = [np.zeros(0)], [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=np.int64)]
    with torch.inference_mode():
        for batch in batches:
            logits = module.predict_masked(batch)
            losses.append(F.cross_entropy(logits, batch.masked_labels_M, reduction="none").cpu().numpy())
            right.append((logits.argmax(-1) == batch.masked_labels_M).cpu().numpy())
            labels.append(batch.masked_labels_M.cpu().numpy())
    return np.concatenate(losses).astype(np.float64), np.concatenate(right), np.concatenate(labels)


def group_sums(losses: np.ndarray, right: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return float64 (GROUPS, 4): positions, and the sums of model loss, unigram loss and correct guesses.

    The order is that of GROUPS. `counts` int64 (V,) are the occurrences of each vocabulary entry in training text. For
    the unigram loss, every count is increased by 1.
    """
    group = np.digitize(counts[labels] * 1e6 / max(1, counts.sum()), EDGES)
    unigram = -np.log((counts[labels] + 1.0) / (counts.sum() + len(counts)))
    columns = (np.ones(len(losses)), losses, unigram, right.astype(np.float64))
    return np.stack([np.bincount(group, column, minlength=len(GROUPS)) for column in columns], axis=1)


def of_sums(sums: np.ndarray) -> LossByFrequency:
    """Return the means of the groups that have positions; `sums` come from `group_sums`."""
    present = np.flatnonzero(sums[:, 0])
    positions, *means = sums[present].T
    model, unigram, accuracy = (column / positions for column in means)
    return LossByFrequency(
        groups=tuple(GROUPS[number] for number in present.tolist()),
        counts=positions.astype(np.int64),
        model=model,
        unigram=unigram,
        accuracy=accuracy,
    )


def as_records(measured: LossByFrequency) -> list[dict[str, Any]]:
    """Return the losses as one dictionary per group, for a run's summary."""
    columns = {name: value if name == "groups" else value.tolist() for name, value in vars(measured).items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def of_records(records: Sequence[Mapping[str, Any]]) -> LossByFrequency:
    """Return the losses from the dictionaries that `as_records` returned."""
    columns = {name: [record[name] for record in records] for name in records[0]}
    arrays = {name: np.array(values) for name, values in columns.items() if name != "groups"}
    return LossByFrequency(groups=tuple(columns["groups"]), **arrays)
