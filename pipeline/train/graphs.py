"""Forward and backward of slots, and the update of the weights, as CUDA graphs: one launch instead of hundreds.

A graph has fixed shapes. So a slot is filled to one of a few sizes by dummy sequences, which count nowhere.
"""

import gc
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.batch import IGNORED, PAIR_LABELS, MaskedBatch, pack, unpack
from pipeline.config.phases import Phase
from pipeline.optim.loss_scale import LossScale
from pipeline.train.flat_gradients import FlatGradients

Size = tuple[int, int]
"""Tokens and masked positions of a filled slot."""
SHARES = (*(Fraction(eighths, 8) for eighths in range(1, 5)), *(Fraction(parts, 24) for parts in range(13, 25)))
"""Sizes to which slots are filled, as shares of a slot's most tokens. Most slots are at least three quarters full."""
WARM_UP = 3
"""Runs before a graph is recorded: they compile code, create an optimiser's state, and let libraries choose kernels."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Upper bounds of a slot's rows and tokens, and its share of masked tokens."""

    rows: int
    row_length: int
    """Maximum number of tokens of a row."""
    masked_share: float

    @cached_property
    def sizes(self) -> list[int]:
        """Tokens of filled slots without their least dummies, from the smallest."""
        return [self.rows * math.ceil(share * self.row_length) for share in SHARES]

    def fill(self, batch: MaskedBatch) -> MaskedBatch:
        """Return the batch filled to one of SHARES of the slot's tokens, and its masked positions likewise.

        The batch always gets some dummy tokens, and the number of dummy sequences is the same for all sizes.
        """
        assert batch.tokens <= self.sizes[-1]
        tokens = next(size for size in self.sizes if size >= batch.tokens)
        # Rows round the number of their masked tokens, by at most one each.
        masked = math.ceil(self.masked_share * tokens) + self.rows
        dummies = -(
            -self.sizes[0] // max(1, self.row_length - 1)
        )  # no two sizes are farther apart than 0 and the first
        return filled(
            batch,
            tokens=tokens + dummies,
            masked=-(-batch.masked // masked) * masked,
            dummies=dummies,
            maximum_length=self.row_length,
        )


def filled(batch: MaskedBatch, *, tokens: int, masked: int, dummies: int, maximum_length: int) -> MaskedBatch:
    """Return the batch with `dummies` more sequences, so that it has `tokens` tokens and `masked` masked positions.

    No token of another sequence attends to a dummy. The label of an added masked position, or of a dummy pair, is
    IGNORED. `maximum_length` is that of the new batch. At least one token for each dummy must be missing.
    """
    missing, missing_masked = tokens - batch.tokens, masked - batch.masked
    lengths = torch.tensor([missing // dummies + (number < missing % dummies) for number in range(dummies)])
    zeros = torch.zeros(missing, dtype=torch.int64)
    ends = (batch.offsets[-1] + lengths.cumsum(0)).int()
    ignored: dict[str, Any] = {}
    if name := PAIR_LABELS.get(type(batch)):
        ignored[name] = torch.cat((getattr(batch, name), torch.full((dummies,), IGNORED)))
    return replace(
        batch,
        ids_T=torch.cat((batch.ids_T, zeros)),
        segments_T=torch.cat((batch.segments_T, zeros)),
        positions_T=torch.cat((batch.positions_T, *[torch.arange(int(length)) for length in lengths])),
        offsets=torch.cat((batch.offsets, ends)),
        maximum_length=maximum_length,
        # The positions differ, because many equal ones would make the backward of indexing slow.
        masked_positions_M=torch.cat((batch.masked_positions_M, torch.arange(missing_masked) % tokens)),
        masked_labels_M=torch.cat((batch.masked_labels_M, torch.full((missing_masked,), IGNORED))),
        is_filled=True,
        **ignored,
    )


def capacity_of(phase: Phase) -> Capacity:
    """Return the capacity of a phase's slots."""
    sampling = phase.sampling
    return Capacity(rows=phase.batch.slot_rows, row_length=sampling.row_length, masked_share=sampling.masking.share)


def has_single_slots(phase: Phase, world: int) -> bool:
    """Return whether each step of a phase is one slot on one rank."""
    return world == 1 and phase.batch.rows_per_step == phase.batch.slot_rows


Gradients = list[tuple[nn.Parameter, Tensor]]
"""Parameters and their gradients."""


@dataclass(frozen=True, kw_only=True)
class _Graph:
    """A recorded forward and backward, and the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    """The packed batch."""
    sums: Mapping[str, Tensor]
    """Loss term -> its sum in the batch."""
    gradients: Gradients
    """Gradients that it writes; empty if it adds to those of all slots, or if a recorded update reads them."""


@dataclass(frozen=True, kw_only=True)
class _Update:
    """A recorded update of the weights."""

    graph: torch.cuda.CUDAGraph
    norm: Tensor
    """The gradient norm, which it writes."""


class SlotGraphs:
    """Computes the gradients of slots, adds them up over ranks, and updates the weights, by CUDA graphs.

    A graph is recorded for the first slot of its size. All graphs share their memory. They add to the same gradients,
    which are next to each other in memory, and which the graph of the update reads and sets to 0.

    `reduce_precision`: number format in which ranks add up gradients, float32 or bfloat16; None: there is one rank.
    `single`: each step has one slot. Then gradients stay where backward put them, and each size has its own update.
    `records`: whether anything is recorded. Otherwise slots are filled and gradients kept likewise, but each operator
    is launched on its own, on any device.
    """

    def __init__(
        self,
        objective: nn.Module,
        autocast: torch.autocast,
        device: torch.device,
        capacity: Capacity,
        *,
        reduce_precision: str | None = None,
        single: bool = False,
        records: bool = True,
    ) -> None:
        self.objective, self.autocast, self.device, self.capacity = objective, autocast, device, capacity
        self.reduce_precision, self.single, self.records = reduce_precision, single, records
        self.all_divisors: Tensor | None = None
        """Divisors of all loss terms, which the graphs read; None before the first step."""
        self.divisors: dict[str, Tensor] = {}
        """Loss term -> its element of `all_divisors`."""
        self.scale: LossScale | None = None
        self.gradients: FlatGradients | None = None
        """Gradients to which all slots add; None before the first slot, and for single slots."""
        self.graphs: dict[Size, _Graph] = {}
        """Tokens and masked positions of a filled slot -> its graph."""
        self.warmed = set[Size]()
        """Sizes that `warm_up` has run."""
        self.updates: dict[Size | None, _Update] = {}
        """Size of a single slot, or None for all sizes -> the graph of the update."""
        self.pool = torch.cuda.graph_pool_handle() if records else None
        self.cleared = False
        """Whether the gradients are 0."""
        self.launched_updates = 0
        """Updates that were not replayed."""
        self.newest: Size | None = None
        """Size of the newest single slot."""

    def warm_up(self, batches: Iterable[MaskedBatch], counts: Mapping[str, float]) -> None:
        """Run slots of all these sizes before any is recorded. `counts` is as in `start`.

        Memory of recorded graphs is not free for operators that are launched, so warming up between recordings would
        need the memory of two slots.
        """
        if not self.records:
            return
        self._set_divisors(counts)
        for batch in map(self.capacity.fill, batches):
            static = unpack(batch, pack(batch).to(self.device))
            if self.gradients is None and not self.single:
                self._find_gradients(static)
            self._warm_up(static, WARM_UP)
            self.warmed.add(_size_of(batch))
        self.cleared = False

    def start(
        self, batches: Sequence[MaskedBatch], counts: Mapping[str, float | Tensor], scale: LossScale | None = None
    ) -> list[MaskedBatch]:
        """Begin a step: set the gradients to 0, record the graphs that are missing, and return the filled batches.

        `counts`: loss term -> divisor of its sum. `scale`: factor in the gradients.
        """
        self.scale = scale
        self._set_divisors(counts)
        if self.gradients is not None:
            self.gradients.attach()
        slots = [self.capacity.fill(batch) for batch in batches]
        for batch in slots:
            self._get_ready(batch)
        if self.gradients is not None and not self.cleared:
            self.gradients.clear()
        self.cleared = False
        return slots

    def add_gradients(self, batch: MaskedBatch) -> Mapping[str, Tensor]:
        """Add the gradients of a filled slot's losses, each divided by its divisor; return the sum of each loss term.

        The next call overwrites the sums. Dropout depends on the state of torch's generator.
        """
        if not self.records:
            return self._backward(batch.to(self.device))
        self.newest = _size_of(batch) if self.single else None
        recorded = self.graphs[_size_of(batch)]
        recorded.inputs.copy_(pack(batch), non_blocking=True)
        recorded.graph.replay()
        for parameter, gradient in recorded.gradients:
            parameter.grad = gradient
        return recorded.sums

    def reduce(self) -> None:
        """Add up the gradients of all ranks, after the last slot of each."""
        if self.reduce_precision is not None:
            assert self.gradients is not None
            self.gradients.reduce(self.reduce_precision)

    def update(self, clipped_update: Callable[[], Tensor]) -> Tensor:
        """Call a function that updates the weights by the gradients; return its result, the gradient norm.

        From the third step on, its launches are replayed, so it must be the same function at every step, and must read
        what changes from tensors.
        """
        if not self.records or self.launched_updates < WARM_UP - 1:
            self.launched_updates += 1
            return clipped_update()
        if self.newest not in self.updates:
            with self._record() as graph:
                norm = clipped_update()
                if self.gradients is not None:
                    self.gradients.clear()
            self.updates[self.newest] = _Update(graph=graph, norm=norm)
            if self.newest is not None:  # no one else reads these gradients: other graphs may use their memory
                self.graphs[self.newest].gradients.clear()
        recorded = self.updates[self.newest]
        recorded.graph.replay()
        self.cleared = True
        return recorded.norm.clone()  # the next step overwrites the norm

    def size_of(self, batch: MaskedBatch) -> Size:
        """Return the size to which a batch is filled."""
        return _size_of(self.capacity.fill(batch))

    def spoil(self) -> None:
        """Make the newest slot's gradients infinite, so that the update leaves weights and optimiser as they are."""
        for parameter in self.objective.parameters():
            if parameter.grad is not None:
                parameter.grad.fill_(torch.inf)

    def _set_divisors(self, counts: Mapping[str, float | Tensor]) -> None:
        """Set the divisors of the loss terms, which the graphs read. One copy launches less than a fill for each."""
        if self.all_divisors is None:
            self.all_divisors = torch.empty(len(counts), device=self.device)
            self.divisors = dict(zip(counts, self.all_divisors.unbind(), strict=True))
        values = torch.tensor([counts[term] for term in self.divisors], dtype=torch.float32)
        values = values if self.device.type == "cpu" else values.pin_memory()  # so that the host does not wait
        self.all_divisors.copy_(values, non_blocking=True)

    def _get_ready(self, batch: MaskedBatch) -> None:
        """Find the parameters that get gradients, and record the graph of the batch's size, if this was not done."""
        finds, records = self.gradients is None and not self.single, self.records and _size_of(batch) not in self.graphs
        if not finds and not records:
            return
        inputs = pack(batch).to(self.device) if records else None
        static = batch.to(self.device) if inputs is None else unpack(batch, inputs)
        if finds:
            self._find_gradients(static)
        if inputs is not None:
            if _size_of(batch) not in self.warmed:
                self._warm_up(static, WARM_UP)
            self.graphs[_size_of(batch)] = self._recorded(static, inputs)
        self.cleared = False

    def _find_gradients(self, batch: MaskedBatch) -> None:
        """Find the parameters that get gradients, and lay these gradients next to each other."""
        self._warm_up(batch, 1)
        parameters = [parameter for parameter in self.objective.parameters() if parameter.grad is not None]
        self.objective.zero_grad(set_to_none=True)
        self.gradients = FlatGradients(parameters)
        self.gradients.attach()

    def _warm_up(self, batch: MaskedBatch, times: int) -> None:
        """Run forward and backward as often, in a stream of their own if they are to be recorded."""
        if not self.records:
            self._backward(batch)
            return
        stream, current = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(times):
                self._backward(batch)
        current.wait_stream(stream)

    def _recorded(self, batch: MaskedBatch, inputs: Tensor) -> _Graph:
        """Record a graph for batches of this size, whose tensors are views of `inputs`."""
        if self.single:  # so that backward writes new gradients, instead of adding to those that are there
            self.objective.zero_grad(set_to_none=True)
        with self._record() as graph:
            sums = self._backward(batch)
        own: Gradients = []
        if self.single:
            every = self.objective.parameters()
            own = [(parameter, parameter.grad) for parameter in every if parameter.grad is not None]
            self.objective.zero_grad(set_to_none=True)
        return _Graph(graph=graph, inputs=inputs, sums=sums, gradients=own)

    @contextmanager
    def _record(self) -> Generator[torch.cuda.CUDAGraph]:
        """Record the operations of the block; nothing is computed until the graph is replayed."""
        gc.collect()  # so that no destructor waits for the device while the graph is recorded
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile, such as the one that writes checkpoints.
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            yield graph

    def _backward(self, batch: MaskedBatch) -> Mapping[str, Tensor]:
        with self.autocast:
            terms = self.objective(batch)
        loss = torch.stack([total / self.divisors[name] for name, (total, _) in terms.items()]).sum()
        (loss if self.scale is None else loss * self.scale.value).backward()
        return {name: total.detach() for name, (total, _) in terms.items()}


def _size_of(batch: MaskedBatch) -> Size:
    return batch.tokens, batch.masked
