"""Recorded steps on a CUDA device that computes nothing, run by test_gpu_path.py: what is recorded and what is not.

A graph is a count of the operators that it would replay.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from pipeline.batch import MaskedBatch
from pipeline.config.training import AdamW, Lamb, Muon, StableAdamW
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.train import flat_gradients
from pipeline.train.graphs import SHARES, Capacity, SlotGraphs
from pipeline.train.step import StepContext, prepare, train_step
from tests.cuda.budget import VIEWS
from tests.cuda.device import CUDA, Stream, move, on_device
from tests.cuda.steps import batch_of, bfloat16, module_of
from tests.cuda.watch import Watch

ROWS, LENGTH = 6, 64
CAPACITY = Capacity(rows=ROWS, row_length=LENGTH, masked_share=0.15)


class Graph:
    """A graph: operators that were recorded, and how often they were replayed."""

    def __init__(self) -> None:
        self.operators: Counter[str] = Counter()
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


class WaitingStream(Stream):
    def wait_stream(self, other: object) -> None:
        """Do nothing."""


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Graph]]:
    """Graphs in the order in which they are recorded."""
    graphs: list[Graph] = []

    @contextmanager
    def record(graph: Graph, pool: object, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        graphs.append(graph)
        with Watch() as watch:
            yield
        graph.operators = watch.counts

    @contextmanager
    def stream(which: object) -> Iterator[None]:
        yield

    for name, value in {
        "CUDAGraph": Graph,
        "graph": record,
        "stream": stream,
        "Stream": lambda device: WaitingStream(),
        "current_stream": lambda device=None: WaitingStream(),
        "graph_pool_handle": lambda: (0, 1),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    yield graphs


@pytest.fixture
def two_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process group that sends nothing, and pieces so small that there are several."""
    monkeypatch.setattr(flat_gradients, "PIECE", 1 << 14)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def examples() -> list[MaskedBatch]:
    """Return slots of three sizes."""
    return [batch_of(ROWS, int(LENGTH * share)) for share in (SHARES[0], SHARES[len(SHARES) // 2], SHARES[-1])]


def launches(watch: Watch) -> int:
    """Return the number of operators that launch kernels."""
    return sum(count for name, count in watch.counts.items() if name not in VIEWS)


def third_step(slots: int, optimizer: AdamW, *, single: bool, precision: str | None = None) -> tuple[Watch, SlotGraphs]:
    """Take three steps after recording; return the launches of the third, replays apart."""
    module, batch = module_of("bert", hidden_dropout=0.1), batch_of(ROWS, LENGTH)
    counts = divisors(module.counts(batch), module.weights)
    with on_device():
        move(module)
        chosen = build_optimizer(optimizer, module)
        graphs = SlotGraphs(module, bfloat16(), CUDA, CAPACITY, reduce_precision=precision, single=single)
        compute = StepContext(device=CUDA, autocast=bfloat16(), seed=0, world=2 if precision else 1, graphs=graphs)
        prepare(graphs, chosen, module, examples(), clip_norm=1.0)
        for step in range(3):
            with Watch() as watch:
                dealt = [(slot, batch) for slot in range(slots)]
                train_step(module, chosen, dealt, counts, compute, step=step, rate=1e-4, clip_norm=1.0)
        assert all(parameter.grad is None for parameter in module.parameters())
    return watch, graphs


@pytest.mark.parametrize("optimizer", [AdamW(), Lamb(), StableAdamW(), Muon()], ids=lambda one: type(one).__name__)
def test_a_prepared_step_of_one_slot_records_nothing_more(recorded: list[Graph], optimizer: AdamW) -> None:
    """Each size has a graph of its gradients and one of its update, and no gradient is added to another."""
    watch, graphs = third_step(1, optimizer, single=True)
    sizes = len({graphs.size_of(batch) for batch in examples()})
    assert len(recorded) == 2 * sizes == len(graphs.graphs) + len(graphs.updates)
    assert graphs.gradients is None and all(not graph.gradients for graph in graphs.graphs.values())
    assert launches(watch) <= 7, watch.counts  # one more is the replay of the update
    assert sum(graph.replays for graph in recorded) == 2 * (sizes + 2 + 3) - 2  # the first two updates are launched


def test_all_sizes_are_warmed_up_before_any_is_recorded(recorded: list[Graph], monkeypatch: pytest.MonkeyPatch) -> None:
    """Warming up beside a recorded graph would need the memory of two slots."""
    before: list[int] = []
    warm_up = SlotGraphs._warm_up

    def counted(self: SlotGraphs, batch: MaskedBatch, times: int) -> None:
        before.append(len(recorded))
        warm_up(self, batch, times)

    monkeypatch.setattr(SlotGraphs, "_warm_up", counted)
    _, graphs = third_step(2, AdamW(), single=False)
    assert before == [0] * (1 + len(graphs.graphs)), "once to find the gradients, and once for each size"


def test_slots_of_several_ranks_add_to_the_same_gradients(recorded: list[Graph], two_ranks: None) -> None:
    watch, graphs = third_step(2, AdamW(), single=False, precision="float32")
    assert len(recorded) == len(graphs.graphs) + 1 and list(graphs.updates) == [None]
    assert graphs.gradients is not None
    pieces = len(graphs.gradients.flat.split(1 << 14))
    assert watch.counts["allreduce_"] == pieces > 1
    assert launches(watch) - pieces <= 16, watch.counts
    assert watch.counts["zero_"] == 0, "the graph of the update sets the gradients to 0"


def test_ranks_add_up_in_bfloat16_piece_by_piece(recorded: list[Graph], two_ranks: None) -> None:
    watch, graphs = third_step(2, AdamW(), single=False, precision="bfloat16")
    assert graphs.gradients is not None
    pieces = len(graphs.gradients.flat.split(1 << 14))
    assert watch.counts["allreduce_"] == pieces and watch.counts["_to_copy"] >= pieces <= watch.counts["copy_"]


def test_single_slots_do_not_add_gradients(recorded: list[Graph]) -> None:
    """The graph of a slot has an addition per parameter less than where slots add up."""
    _, alone = third_step(1, AdamW(), single=True)
    first = recorded[0].operators
    recorded.clear()
    _, several = third_step(2, AdamW(), single=False)
    assert several.gradients is not None
    assert recorded[0].operators["add_"] - first["add_"] == len(several.gradients.pairs) > 0
