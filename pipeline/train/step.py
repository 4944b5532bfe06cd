"""One training step of pretraining or fine-tuning: forward, backward, reduction over ranks, clipping, update.

Each loss term is a sum divided by a count over all ranks. The counts must be known before the first backward. A loss
that compares all rows of the step needs two passes: the first computes the vectors of all rows without gradients, the
second computes the gradients slot by slot (GradCache, Gao et al. 2021).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from pipeline.batch import AnyBatch, MaskedBatch
from pipeline.errors import ConfigError
from pipeline.evaluation.gather import gather_slots
from pipeline.objectives.terms import Terms
from pipeline.optim.build import set_rates
from pipeline.optim.loss_scale import LossScale, loss_scale_of
from pipeline.train.graphs import WARM_UP, SlotGraphs

CLIP_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_
MOST_ROUNDING = 0.02
"""Maximum distance of two vectors of length 1 that differ only by rounding, in bfloat16 or float32."""

Slot = tuple[int, AnyBatch]
"""A slot's index in its step, 0..S-1, and its batch, which goes through one forward and backward."""
Counts = Mapping[str, float | Tensor]
"""Loss term -> divisor of its sum in a step: the term's count over all ranks, divided by its weight."""


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """Device, number format, seed, rank and number of ranks, for the steps of one rank."""

    device: torch.device
    autocast: torch.autocast
    seed: int
    """Seed of dropout."""
    rank: int = 0
    world: int = 1
    """Number of ranks."""
    graphs: SlotGraphs | None = None
    """CUDA graphs of forward, backward and update; None: each operator is launched on its own."""
    timed: Callable[[], AbstractContextManager[None]] = nullcontext
    """Times the forward and backward of a slot that `graphs` computes."""


def distributed(
    module: nn.Module, device: torch.device, world: int, *, unused: bool = False, reduce_precision: str = "float32"
) -> nn.Module:
    """Return the module; if there are several ranks, return DistributedDataParallel around the module.

    `unused`: some parameters may get no gradient, such as the pooler's when a tagger is trained. `reduce_precision`:
    number format in which ranks add up gradients, float32 or bfloat16.
    """
    if world == 1:
        return module
    devices = [device] if device.type == "cuda" else None
    parallel = DistributedDataParallel(
        module, device_ids=devices, gradient_as_bucket_view=True, find_unused_parameters=unused
    )
    if reduce_precision == "bfloat16":
        parallel.register_comm_hook(None, _average_in_bfloat16)
    return parallel


def _average_in_bfloat16(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Average a bucket of gradients over ranks in bfloat16, as torch's bf16_compress_hook, which refuses CPUs."""
    sent = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    work = dist.all_reduce(sent, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))


def train_step(
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
    slots: Sequence[Slot],
    counts: Counts,
    compute: StepContext,
    *,
    step: int,
    rate: float,
    clip_norm: float,
) -> tuple[dict[str, Tensor], Tensor]:
    """Train on this rank's slots of a step; return this rank's loss sums by term, and the gradient norm.

    The norm is over all ranks and before clipping. The host does not wait for the device.
    """
    scale = loss_scale_of(optimizer, compute.autocast, compute.device)
    sums = backward(objective, slots, counts, compute, step=step, scale=scale)
    norm = update(optimizer, objective, rate=rate, clip_norm=clip_norm, scale=scale, graphs=compute.graphs)
    return sums, norm


def seed_dropout(seed: int, step: int, slot: int) -> None:
    """Seed torch for one slot's forward, so that dropout is the same for every number of workers."""
    torch.manual_seed(int(np.random.SeedSequence((seed, step, slot)).generate_state(1, np.uint64)[0] >> 1))


def backward(
    objective: nn.Module,
    slots: Sequence[Slot],
    counts: Counts,
    compute: StepContext,
    *,
    step: int,
    scale: LossScale | None = None,
) -> dict[str, Tensor]:
    """Compute the gradients of the step's mean loss, times `scale`; return this rank's loss sums by term, float64.

    `objective` is the module or DistributedDataParallel around it. DistributedDataParallel averages gradients over
    ranks; this function undoes the averaging, so gradients are summed.
    """
    if compute.graphs is not None:
        return _backward_of_graphs(compute.graphs, slots, counts, compute, step=step, scale=scale)
    module = objective.module if isinstance(objective, nn.parallel.DistributedDataParallel) else objective
    first = None
    if getattr(module, "two_passes", False):  # many modules of fine-tuning do not say
        first = _first_pass(module, objective, slots, counts, compute, step=step)
    sums: dict[str, Tensor] = {}
    for slot, batch in slots:
        synchronise = compute.world == 1 or slot == slots[-1][0]
        with nullcontext() if synchronise else objective.no_sync():
            output = _forward(objective, slot, batch, compute, step=step)
            if first is None:
                terms, loss = output, sum(total / counts[name] for name, (total, _) in output.items())
            else:
                if step == 0:
                    _require_equal_passes(first.texts[slot], output.detach())
                terms, loss = first.terms[slot], (output * first.gradients[slot]).sum()
            (compute.world * loss if scale is None else compute.world * loss * scale.value).backward()
        for name, (total, _) in terms.items():
            sums[name] = sums.get(name, 0.0) + total.detach().double()
    return sums


def _backward_of_graphs(
    graphs: SlotGraphs,
    slots: Sequence[Slot],
    counts: Counts,
    compute: StepContext,
    *,
    step: int,
    scale: LossScale | None,
) -> dict[str, Tensor]:
    """Do the work of `backward` by CUDA graphs. Dropout differs from `backward`'s, because batches are filled."""
    sums: dict[str, Tensor] = {}
    for (slot, _), batch in zip(slots, graphs.start([batch for _, batch in slots], counts, scale), strict=True):
        seed_dropout(compute.seed, step, slot)
        with compute.timed():
            totals = graphs.add_gradients(batch)
        for name, total in totals.items():
            own = total.to(torch.float64, copy=True)  # the next slot overwrites the total
            sums[name] = sums[name] + own if name in sums else own
    graphs.reduce()
    return sums


def prepare(
    graphs: SlotGraphs, optimizer: Any, objective: nn.Module, examples: Iterable[MaskedBatch], *, clip_norm: float
) -> None:
    """Record the graphs of these batches' sizes and of the update, before the first step.

    Weights and the optimiser's state keep their values, because the gradients of all these steps are infinite.
    """
    sizes = {graphs.size_of(batch): batch for batch in examples}
    first, counts = next(iter(sizes.values())), dict.fromkeys(objective.terms, 1.0)
    graphs.warm_up(sizes.values(), counts)
    for batch in (*[first] * (WARM_UP - 1), *sizes.values()):
        for slot in graphs.start([batch], counts):
            graphs.add_gradients(slot)
        graphs.spoil()
        update(optimizer, objective, rate=0.0, clip_norm=clip_norm, graphs=graphs)


def _forward(objective: nn.Module, slot: int, batch: AnyBatch, compute: StepContext, *, step: int) -> Any:
    """Return the objective's output for a slot; dropout depends on seed, step and slot only."""
    seed_dropout(compute.seed, step, slot)
    with compute.autocast:
        return objective(batch.to(compute.device))


@dataclass(frozen=True, kw_only=True)
class _FirstPass:
    """Result of the first of two passes, for this rank's slots."""

    texts: dict[int, Tensor]
    """Slot -> the vectors of its texts, (N, 2 + K, W)."""
    terms: dict[int, Terms]
    """Slot -> its loss terms."""
    gradients: dict[int, Tensor]
    """Slot -> gradient of the step's mean loss with respect to the slot's vectors."""


def _first_pass(
    module: Any,
    objective: nn.Module,
    slots: Sequence[Slot],
    counts: Counts,
    compute: StepContext,
    *,
    step: int,
) -> _FirstPass:
    """Compute the vectors of this rank's slots, gather the vectors of all ranks, and compare all rows of the step.

    Every rank computes the losses of all rows, which costs less than sending similarities between ranks.
    """
    with torch.no_grad():
        texts = {slot: _forward(objective, slot, batch, compute, step=step) for slot, batch in slots}
    keys = {slot: batch.keys.to(compute.device) for slot, batch in slots}
    some = slots[0][0]
    every, places = gather_slots(texts, texts[some][:0], compute.world)
    every_key, _ = gather_slots(keys, keys[some][:0], compute.world)
    ((term, divisor),) = counts.items()
    losses_N, gradients = module.losses_and_gradients(every, every_key, divisor)
    return _FirstPass(
        texts=texts,
        terms={slot: {term: (losses_N[places[slot]].double().sum(), len(texts[slot]))} for slot in texts},
        gradients={slot: gradients[places[slot]] for slot in texts},
    )


def _require_equal_passes(first: Tensor, second: Tensor) -> None:
    """Raise ConfigError if the directions of the vectors of the two passes (N, 2 + K, W) differ by more than rounding.

    If the passes draw different dropout, the vectors differ, and the gradients would be wrong. The host waits for
    the device, so only the first step of a run is checked.
    """
    distance = (F.normalize(second, dim=2) - F.normalize(first, dim=2)).norm(dim=2).max().item()
    if distance > MOST_ROUNDING:
        raise ConfigError(
            f"the two passes of a contrastive loss give different vectors (distance {distance:.2g}), because they "
            "drew different dropout on this device: set model.hidden_dropout and model.attention_dropout to 0"
        )


def update(
    optimizer: Any,
    module: nn.Module,
    *,
    rate: float,
    clip_norm: float,
    scale: LossScale | None = None,
    graphs: SlotGraphs | None = None,
) -> Tensor:
    """Clip the reduced gradients, update the weights at learning rate `rate`, and clear the gradients.

    `scale` is a factor in the gradients. Return the gradient norm before clipping, without this factor. If the norm is
    not finite, weights and optimiser state stay unchanged, and only the loss scale falls. The host does not wait for
    the device. With `graphs`, which computed the gradients, the update becomes a graph too.
    """
    assert getattr(optimizer, "_step_supports_amp_scaling", False), "an optimiser must use grad_scale and found_inf"
    set_rates(optimizer, rate)
    clipped = partial(_clipped_update, optimizer, module, clip_norm, scale)
    norm = clipped() if graphs is None else graphs.update(clipped)
    optimizer.zero_grad(set_to_none=True)
    return norm


def _clipped_update(optimizer: Any, module: nn.Module, clip_norm: float, scale: LossScale | None) -> Tensor:
    """Do the work of `update` that a graph can record: it reads rates, gradients and scale from their tensors."""
    # torch's mixed precision sets two attributes on an optimiser. On the device, the optimiser's kernel then divides
    # the gradients by grad_scale, and skips the update if found_inf is 1. Here grad_scale also clips the gradients, and
    # found_inf skips steps whose norm is not finite.
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
    norm = norm if scale is None else norm / scale.value
    clip = ((norm + CLIP_EPSILON) / clip_norm).clamp(min=1.0)
    optimizer.grad_scale = clip if scale is None else clip * scale.value
    optimizer.found_inf = (~norm.isfinite()).float()
    optimizer.step()
    if scale is not None:
        scale.follow(optimizer.found_inf)
    return norm
