"""Gather the rows of all ranks, in the order of their slots."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor


def gather_slots(own: Mapping[int, Tensor], like: Tensor, world: int) -> tuple[Tensor, dict[int, slice]]:
    """Return the rows of the slots of all ranks, in the order of the slots' indices, and where each slot's rows are.

    The second result maps the index of a slot to the slice of its rows.

    `own` maps the indices of this rank's slots to their rows; `own` may be empty. `like` is a tensor without rows; its
    other dimensions, its type and its device are those of the rows. Every rank must call this function.
    """
    sizes = [{index: len(rows) for index, rows in own.items()}] * world
    mine = torch.cat([like, *own.values()])
    every = [mine]
    if world > 1:
        dist.all_gather_object(sizes, sizes[0])
        # all_gather needs equal shapes, so ranks with fewer rows than others fill up with zeros.
        filled = like.new_zeros(max(sum(of_rank.values()) for of_rank in sizes), *like.shape[1:])
        filled[: len(mine)] = mine
        every = [torch.empty_like(filled) for _ in range(world)]
        dist.all_gather(every, filled)
    slots: dict[int, Tensor] = {}
    for of_rank, rows in zip(sizes, every, strict=True):
        lengths = [*of_rank.values()]
        slots |= dict(zip(of_rank, rows[: sum(lengths)].split(lengths), strict=True))
    places, start = {}, 0
    for index in sorted(slots):
        places[index] = slice(start, start + len(slots[index]))
        start += len(slots[index])
    return torch.cat([like, *(slots[index] for index in sorted(slots))]), places
