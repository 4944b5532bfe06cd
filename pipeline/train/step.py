"""One optimiser update from this rank's slots: sums over counts that are known before the first backward (contract 6)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from pipeline.batch import Batch, collate
from pipeline.corpus.order import Cursor

if TYPE_CHECKING:  # a machine that only measures the step has no pyarrow
    import pyarrow as pa

CURSOR = ("epoch", "window", "row", "rows_in_window")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What every rank knows of a slot before the step's first backward."""

    place: int
    """0..S-1 in the step."""
    rows: int
    tokens: int
    squares: int
    """Sum of the squares of the sequences' lengths: what attention costs."""
    masked: int
    crc32: int
    """Of the ids and labels: the same in every run that saw the same rows."""
    first: Cursor
    last: Cursor

    def to_numbers(self) -> list[int]:
        cursors = [getattr(c, name) for c in (self.first, self.last) for name in CURSOR]
        return [self.place, self.rows, self.tokens, self.squares, self.masked, self.crc32, *cursors]

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> "Record":
        place, rows, tokens, squares, masked, crc32, *cursors = map(int, numbers)
        first, last = (Cursor(**dict(zip(CURSOR, cursors[i : i + 4], strict=True))) for i in (0, 4))
        return cls(place=place, rows=rows, tokens=tokens, squares=squares, masked=masked, crc32=crc32, first=first, last=last)


NUMBERS = 6 + 2 * len(CURSOR)


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The rows of one slot as a batch, and its record."""

    batch: Batch
    record: Record


def make_slot(table: pa.Table, place: int) -> Slot:
    """A slot from its rows (schema ROW)."""
    batch = collate(table)
    cursors = [Cursor(**{name: table.column(name)[i].as_py() for name in CURSOR}) for i in (0, table.num_rows - 1)]
    crc32 = zlib.crc32(np.ascontiguousarray(batch.masked_labels_M.numpy()), zlib.crc32(np.ascontiguousarray(batch.ids_T.numpy())))
    record = Record(
        place=place,
        rows=table.num_rows,
        tokens=batch.ids_T.numel(),
        squares=int(batch.offsets.diff().long().square().sum()),
        masked=batch.masked_labels_M.numel(),
        crc32=crc32,
        first=cursors[0],
        last=cursors[1],
    )
    return Slot(batch=batch, record=record)


def exchange(records: Sequence[Record], slots_per_step: int, world: int) -> list[Record]:
    """The records of all slots of the step, in order, from those of every rank."""
    if world == 1:
        return sorted(records, key=lambda record: record.place)
    most = -(-slots_per_step // world)
    mine = torch.full((most, NUMBERS), -1, dtype=torch.int64)
    mine[: len(records)] = torch.tensor([record.to_numbers() for record in records], dtype=torch.int64)
    gathered = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(gathered, mine)
    rows = torch.cat(gathered)
    return sorted((Record.from_numbers(r) for r in rows[rows[:, 0] >= 0].tolist()), key=lambda record: record.place)


def seed_dropout(seed: int, step: int, place: int) -> None:
    """Seed torch for one slot's forward, so that dropout is the same in every world."""
    torch.manual_seed(int(np.random.SeedSequence((seed, step, place)).generate_state(1, np.uint64)[0] >> 1))


def backward(
    objective: nn.Module, slots: Sequence[Slot], counts: dict[str, int], *, world: int, seed: int, step: int, device: torch.device, autocast: torch.autocast
) -> dict[str, torch.Tensor]:
    """Leave on the parameters the gradients of the step's mean loss; give this rank's loss sums by term.

    `objective` is the module, or DistributedDataParallel around it: its averaging over ranks is undone here.
    `counts` are the step's, over all ranks.
    """
    sums: dict[str, torch.Tensor] = {}
    for slot in slots:
        synchronise = world == 1 or slot is slots[-1]
        with nullcontext() if synchronise else objective.no_sync():
            seed_dropout(seed, step, slot.record.place)
            with autocast:
                terms = objective(slot.batch.to(device))
            (world * sum(total / counts[name] for name, (total, _) in terms.items())).backward()
        for name, (total, _) in terms.items():
            sums[name] = sums.get(name, 0.0) + total.detach().double()
    return sums


CLIP_EPSILON = 1e-6  # of torch.nn.utils.clip_grad_norm_


def update(optimizer: torch.optim.Optimizer, module: nn.Module, *, rate: float, clip_norm: float) -> torch.Tensor:
    """Clip the reduced gradients, take one optimiser step at learning rate `rate`, clear them; give their norm before clipping.

    Where that norm is not finite, weights and the optimiser's state stay as they are. All this happens on the device, without waiting for it.
    """
    # Attributes by which torch's mixed precision talks to an optimiser, whose kernel then divides and skips by itself.
    assert getattr(optimizer, "_step_supports_amp_scaling", False), "an optimiser must heed grad_scale and found_inf"
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in module.parameters() if parameter.grad is not None])
    optimizer.grad_scale = ((norm + CLIP_EPSILON) / clip_norm).clamp(min=1.0)
    optimizer.found_inf = (~norm.isfinite()).float()
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate_share"]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm
