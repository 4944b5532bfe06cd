"""Forward and backward of slots, and the update of the weights, as CUDA graphs: one launch instead of hundreds.

A graph has fixed shapes. So a slot is filled to one of SIZES sizes by dummy sequences, which count nowhere.
"""

import gc
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline.batch import Batch, filled, pack, unpack
from pipeline.config.phases import Phase

SIZES = 8
"""Sizes to which slots are filled."""
WARM_UP = 3
"""Runs before a graph is recorded: they compile code, create an optimiser's state, and let libraries choose kernels."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Upper bounds of a slot's rows and tokens, and its share of masked tokens."""

    rows: int
    row_length: int
    """Maximum number of tokens of a row."""
    masked_share: float

    def fill(self, batch: Batch) -> Batch:
        """Return the batch filled to a multiple of an eighth of the slot's tokens, and its masked positions likewise.

        The batch always gets some dummy tokens, and the number of dummy sequences is the same for all sizes.
        """
        part = -(-self.rows * self.row_length // SIZES)
        tokens = -(-batch.tokens // part) * part
        # Rows round the number of their masked tokens, by at most one each.
        masked = math.ceil(self.masked_share * tokens) + self.rows
        dummies = -(-part // max(1, self.row_length - 1))
        return filled(
            batch,
            tokens=tokens + dummies,
            masked=-(-batch.masked // masked) * masked,
            dummies=dummies,
            maximum_length=self.row_length,
        )


def capacity_of(phase: Phase) -> Capacity:
    """Return the capacity of a phase's slots."""
    sampling = phase.sampling
    return Capacity(rows=phase.batch.slot_rows, row_length=sampling.row_length, masked_share=sampling.masking.share)


@dataclass(frozen=True, kw_only=True)
class _Graph:
    """A recorded forward and backward, and the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    """The packed batch."""
    sums: Mapping[str, Tensor]
    """Loss term -> its sum in the batch."""


class SlotGraphs:
    """Computes the gradients of slots, and updates the weights by them, by CUDA graphs on one GPU.

    A graph is recorded for the first slot of its size. All graphs share their memory and add to the same gradients,
    which the graph of the update reads and sets to 0.
    """

    def __init__(self, objective: nn.Module, autocast: torch.autocast, device: torch.device, capacity: Capacity):
        self.objective, self.autocast, self.device, self.capacity = objective, autocast, device, capacity
        self.divisors: dict[str, Tensor] = {}
        """Loss term -> its divisor, which the graphs read."""
        self.gradients: list[tuple[nn.Parameter, Tensor]] = []
        """Parameters that get gradients, and these gradients; empty before the first graph."""
        self.graphs: dict[tuple[int, int], _Graph] = {}
        """Tokens and masked positions of a filled slot -> its graph."""
        self.pool = torch.cuda.graph_pool_handle()
        self.cleared = False
        """Whether the gradients are 0."""
        self.updates = 0
        """Updates that were not replayed."""
        self.update_graph: torch.cuda.CUDAGraph | None = None
        self.norm: Tensor | None = None
        """The gradient norm that the graph of the update writes."""

    def start(self, batches: Sequence[Batch], counts: Mapping[str, float | Tensor]) -> list[Batch]:
        """Begin a step: set the gradients to 0, record the graphs that are missing, and return the filled batches.

        `counts`: loss term -> divisor of its sum.
        """
        for term, count in counts.items():
            if term not in self.divisors:
                self.divisors[term] = torch.empty((), device=self.device)
            self.divisors[term].fill_(count)
        for parameter, gradient in self.gradients:
            parameter.grad = gradient
        slots = [self.capacity.fill(batch) for batch in batches]
        for batch in slots:
            if (batch.tokens, batch.masked) not in self.graphs:
                self.graphs[batch.tokens, batch.masked], self.cleared = self._recorded(batch), False
        if not self.cleared:
            self._clear()
        self.cleared = False
        return slots

    def update(self, clipped_update: Callable[[], Tensor]) -> Tensor:
        """Call a function that updates the weights by the gradients; return its result, the gradient norm.

        From the third step on, its launches are replayed, so it must be the same function at every step, and must read
        what changes from tensors.
        """
        if self.updates < WARM_UP - 1:
            self.updates += 1
            return clipped_update()
        if self.update_graph is None:
            with self._record() as self.update_graph:
                self.norm = clipped_update()
                self._clear()
        assert self.norm is not None
        self.update_graph.replay()
        self.cleared = True
        return self.norm.clone()  # the next step overwrites the norm

    def _clear(self) -> None:
        torch._foreach_zero_([gradient for _, gradient in self.gradients])

    def add_gradients(self, batch: Batch) -> Mapping[str, Tensor]:
        """Add the gradients of a filled slot's losses, each divided by its divisor; return the sum of each loss term.

        The next call overwrites the sums. Dropout depends on the state of torch's generator.
        """
        recorded = self.graphs[batch.tokens, batch.masked]
        recorded.inputs.copy_(pack(batch), non_blocking=True)
        recorded.graph.replay()
        return recorded.sums

    def _recorded(self, batch: Batch) -> _Graph:
        """Record a graph for batches of this size."""
        inputs = pack(batch).to(self.device)
        static = unpack(batch, inputs)
        stream, current = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._backward(static)
        current.wait_stream(stream)
        self.gradients = self.gradients or [
            (parameter, parameter.grad) for parameter in self.objective.parameters() if parameter.grad is not None
        ]
        with self._record() as graph:
            sums = self._backward(static)
        return _Graph(graph=graph, inputs=inputs, sums=sums)

    @contextmanager
    def _record(self) -> Generator[torch.cuda.CUDAGraph]:
        """Record the operations of the block; nothing is computed until the graph is replayed."""
        gc.collect()  # so that no destructor waits for the device while the graph is recorded
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile, such as the one that writes checkpoints.
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            yield graph

    def _backward(self, batch: Batch) -> Mapping[str, Tensor]:
        with self.autocast:
            terms = self.objective(batch)
        torch.stack([total / self.divisors[name] for name, (total, _) in terms.items()]).sum().backward()
        return {name: total.detach() for name, (total, _) in terms.items()}
