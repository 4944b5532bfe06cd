"""Slots that are filled and gradients that are kept as for CUDA graphs, on several workers, without recording."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeline.batch import Batch
from pipeline.bench.cases import Case, make_batch
from pipeline.config.adapters import LowRank
from pipeline.config.jobs import Pretrain
from pipeline.config.placement import Placement
from pipeline.config.training import AdamW, Checkpoints, Lamb, Muon, StableAdamW
from pipeline.config.training import Batch as BatchSettings
from pipeline.errors import ConfigError
from pipeline.model.adapters import add_adapter
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.table import build_objective
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer, optimizer_tensors
from pipeline.presets.table import PRESETS
from pipeline.saved import checkpoints
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import checkpoint, flat_gradients, recording, stragglers
from pipeline.train.checkpoint import State
from pipeline.train.graphs import Capacity, SlotGraphs
from pipeline.train.loop import train
from pipeline.train.step import StepContext, distributed, prepare, train_step
from pipeline.train.work import Work
from tests.ranks import Ranks

if TYPE_CHECKING:  # the ranks, which import this module, do not need what it imports
    from tests.conftest import Training

CPU = torch.device("cpu")
PLAIN = torch.autocast("cpu", enabled=False)
Losses = dict[int, list[float]]
FIVE_SLOTS = BatchSettings(rows_per_step=20, rows_per_slot=4)
"""Two workers have 3 and 2 slots, three have 2, 2 and 1."""
STEPS = 6


def losses_of(
    rank: int,
    world: int,
    config: Pretrain,
    vocabulary: Vocabulary,
    blocks: list[pa.Table],
    folder: Path,
    stop_at: int | None = None,
    **others: Any,
) -> Losses:
    """Train on a rank's slots from the newest checkpoint to the end or a step; return losses and norms by step."""
    logged: Losses = {}

    def log(step: int, metrics: dict[str, float]) -> None:
        if step == stop_at:
            raise KeyboardInterrupt
        if "train/loss" in metrics:
            logged[step] = [metrics[name] for name in ("train/mlm_loss", "train/nsp_loss", "train/gradient_norm")]

    generator = torch.Generator().manual_seed(rank)  # training starts with the weights of rank 0
    module = build_objective(config.objective, config.sampling, config.model, vocabulary.size, generator)
    optimizer = build_optimizer(config.optimizer, module)
    found = checkpoints.newest_sound(str(folder), lambda line: None)
    state = checkpoint.load(found, module, optimizer) if found else State()
    work = Work(
        config=config,
        folder=str(folder),
        vocabulary=vocabulary,
        rank=rank,
        world=world,
        device=CPU,
        autocast=PLAIN,
        heldout=(),
        log=log,
        flush=lambda: None,
        records=False,
        **{"say": lambda line: None} | others,
    )
    slots = blocks[config.batch.slots_per_step * state.step :]
    try:
        train(work, iter(slots[rank::world]), module, optimizer, state)
    except KeyboardInterrupt:
        assert stop_at is not None
    return logged


def in_turn(rank: int, *calls: tuple) -> list[Losses]:
    """Train in turn, with gradients that are sent in many pieces."""
    flat_gradients.PIECE = 1_000
    return [losses_of(rank, *call) for call in calls]


@pytest.fixture
def call(training: "Training", without_dropout: Pretrain, tmp_path: Path) -> Callable[..., tuple]:
    """Return the arguments of `losses_of` after the rank, with placement.graphs or without."""
    config = replace(without_dropout, batch=FIVE_SLOTS, steps=STEPS, checkpoint=Checkpoints(every=2))
    blocks = training.blocks(config)[: STEPS * FIVE_SLOTS.slots_per_step]

    def arguments(
        world: int,
        folder: str,
        *,
        graphs: bool = True,
        stop_at: int | None = None,
        dropout: float = 0.0,
        steps: int = STEPS,
    ) -> tuple:
        model = replace(config.model, hidden_dropout=dropout)
        chosen = replace(config, model=model, steps=steps, placement=Placement(graphs="on" if graphs else "off"))
        return world, chosen, training.vocabulary, blocks, tmp_path / folder, stop_at

    return arguments


def assert_equal(found: Losses, wanted: Losses) -> None:
    assert [*found] == [*wanted] == [1, 2, 3, 4, 5, 6]
    for step, values in wanted.items():
        assert found[step] == pytest.approx(values, rel=5e-6)


def test_filled_slots_have_the_losses_of_ddp(call: Callable[..., tuple], ranks: Callable[[int], Ranks]) -> None:
    """Also where two workers are stopped and one goes on."""
    calls = call(2, "ddp", graphs=False), call(2, "two"), call(2, "stopped", stop_at=5)
    (ddp, two, begun), _ = ranks(2).run(in_turn, *calls)
    one, continued = losses_of(0, *call(1, "one")), losses_of(0, *call(1, "stopped"))
    assert [*begun] == [1, 2, 3, 4] and [*continued] == [5, 6]
    for found in (one, two, begun | continued):
        assert_equal(found, ddp)


def test_dropout_of_filled_slots_does_not_depend_on_the_workers(
    call: Callable[..., tuple], ranks: Callable[[int], Ranks]
) -> None:
    two, _ = ranks(2).run(losses_of, *call(2, "two", dropout=0.1))
    assert_equal(losses_of(0, *call(1, "one", dropout=0.1)), two)


def with_a_failing_rank(rank: int, automatic: bool, arguments: tuple) -> tuple[Losses, str, list[str]]:
    """Train where steps cannot be recorded on rank 1: losses, an error and what was called and said."""
    events: list[str] = []

    def fail(graphs: SlotGraphs, *others: object, **options: object) -> None:
        if rank == 1:
            raise RuntimeError("CUDA error: operation not permitted\nmore")
        prepare(graphs, *others, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "prepare", fail)
        options = {"say": events.append, "worker_name": f"worker {rank}"}
        options |= {"drop_graphs": lambda: events.append("dropped")} if automatic else {}
        try:
            return losses_of(rank, *arguments, **options), "", events
        except ConfigError as error:
            return {}, str(error), events


def test_where_a_rank_cannot_record_none_does(call: Callable[..., tuple], ranks: Callable[[int], Ranks]) -> None:
    """With auto, a new run has DDP then; with on, and where a run goes on, it stops with one line."""
    (ddp, _), group = ranks(2).run(losses_of, *call(2, "ddp", graphs=False)), ranks(2)
    problem = "the steps cannot be recorded (worker 1: CUDA error: operation not permitted)"
    (found, _, events), (_, _, others) = group.run(with_a_failing_rank, True, call(2, "automatic"))
    assert_equal(found, ddp)
    said = f"placement.graphs auto: off, because {problem}"
    events, others = ([line for line in lines if "is slow" not in line] for lines in (events, others))
    assert events == ["dropped", said] and others == [said]
    for automatic, folder, remedy in (
        (False, "new", "set placement.graphs auto or off"),
        (True, "automatic", "go on where they can, or with --placement.graphs off"),
    ):
        errors = [error for _, error, _ in group.run(with_a_failing_rank, automatic, call(2, folder, steps=8))]
        assert errors == [f"placement.graphs is on, but {problem}: {remedy}"] * 2


def slow_lines(rank: int, arguments: tuple) -> list[str]:
    """Train with a limit at which every worker is slow, and return what is said about it."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stragglers, "SLOW", 1e-9)
        patch.setattr(stragglers, "INTERVALS", 1)
        losses_of(rank, *arguments, say=said.append)
    return [line for line in said if "slow" in line]


def test_stragglers_are_measured_on_filled_slots(call: Callable[..., tuple], ranks: Callable[[int], Ranks]) -> None:
    lines, _ = ranks(2).run(slow_lines, call(2, "slow"))
    assert len(lines) == 1 and re.match(
        r"worker 0 is slow: its forward and backward passes take \d+ ms, those of the other workers \d+ ms;", lines[0]
    )


@pytest.mark.second
def test_filled_slots_of_three_workers_have_the_losses_of_ddp(
    call: Callable[..., tuple], ranks: Callable[[int], Ranks]
) -> None:
    """Also where one worker is stopped and three go on."""
    begun = losses_of(0, *call(1, "stopped", stop_at=5))
    (ddp, three, continued), _, _ = ranks(3).run(
        in_turn, call(3, "ddp", graphs=False), call(3, "three"), call(3, "stopped")
    )
    assert_equal(three, ddp)
    assert_equal(begun | continued, ddp)


OPTIMIZERS = {"adamw": AdamW(), "lamb": Lamb(), "stable": StableAdamW(), "muon": Muon()}
WORDS = 200
CAPACITY = Capacity(rows=4, row_length=16, masked_share=0.15)
KINDS = (*OPTIMIZERS, "bfloat16 sums", "float16", "frozen", "unused", "adapter")


def module_of(kind: str) -> tuple[MaskedTokens, nn.Linear]:
    """Return a module whose decoder is tied to its word embeddings, and a head of it that is not used."""
    model = replace(PRESETS["bert-tiny"].model, hidden_dropout=0.0, attention_dropout=0.0, layers=1)
    module = MaskedTokens(model, WORDS, torch.Generator().manual_seed(0), pairs=False)
    torch.manual_seed(0)  # of the adapter
    if kind == "adapter":
        add_adapter(module, LowRank())
    if kind == "frozen":
        module.encoder.embeddings.requires_grad_(False)
    head = nn.Linear(8, 8, bias=False)
    nn.init.ones_(head.weight)
    if kind == "unused":
        module.head_of_no_use = head
    return module, head


def steps_of(rank: int, world: int, kind: str, *, graphs: bool) -> tuple[list[float], dict[str, Tensor]]:
    """Take three steps of three slots; return losses and norms, summed over ranks, and weights."""
    (module, head), chosen = module_of(kind), OPTIMIZERS.get(kind, AdamW(weight_decay=0.1))
    autocast = torch.autocast("cpu", dtype=torch.float16) if kind == "float16" else PLAIN
    precision = "bfloat16" if kind == "bfloat16 sums" else "float32"
    optimizer = build_optimizer(chosen, module)
    objective, recorded, found = module, None, []
    if graphs:
        reduce_precision = precision if world > 1 else None
        recorded = SlotGraphs(module, autocast, CPU, CAPACITY, reduce_precision=reduce_precision, records=False)
        prepare(recorded, optimizer, module, batches(4, 2), clip_norm=1.0)
    else:
        objective = distributed(module, CPU, world, unused=kind == "unused", reduce_precision=precision)
    compute = StepContext(device=CPU, autocast=autocast, seed=0, world=world, graphs=recorded)
    for step in range(3):
        slots = list(enumerate(batches(4, 3, seed=step)))
        counts = {"mlm": sum(batch.masked for _, batch in slots)}
        sums, norm = train_step(
            objective, optimizer, slots[rank::world], counts, compute, step=step, rate=1e-3, clip_norm=0.5
        )
        for total in sums.values() if world > 1 else ():
            dist.all_reduce(total)
        found += [float(sums["mlm"]), float(norm)]
    assert (head.weight == 1).all(), "no weight decay without gradients"
    return found, {name: parameter.detach() for name, parameter in module.named_parameters()}


def batches(rows: int, number: int, seed: int = 0) -> list[Batch]:
    case = Case(size="tiny", rows=rows, length=16, lengths="ragged", attention_dropout=False)
    made = [make_batch(case, seed=100 * seed + slot) for slot in range(number)]
    return [replace(one, ids_T=one.ids_T % WORDS, masked_labels_M=one.masked_labels_M % WORDS) for one in made]


@pytest.mark.parametrize(("kind", "single"), [("adamw", False), ("lamb", True), ("stable", False), ("muon", True)])
def test_recording_leaves_weights_and_optimiser_as_they_were(kind: str, single: bool, one_thread: None) -> None:
    """Also after a step, when moments are not 0."""
    module, _ = module_of(kind)
    graphs = SlotGraphs(module, PLAIN, CPU, CAPACITY, single=single, records=False)
    optimizer, compute = build_optimizer(OPTIMIZERS[kind], module), StepContext(device=CPU, autocast=PLAIN, seed=0)
    (batch,) = batches(4, 1)
    counts = divisors(module.counts(batch), module.weights)
    train_step(module, optimizer, [(0, batch)], counts, compute, step=0, rate=1e-3, clip_norm=1.0)
    weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    states = optimizer_tensors(optimizer, module)
    prepare(graphs, optimizer, module, batches(4, 2), clip_norm=1.0)
    for found, wanted in ((module.state_dict(), weights), (optimizer_tensors(optimizer, module), states)):
        assert found.keys() == wanted.keys()
        assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []


def both_ways(rank: int, kinds: Sequence[str]) -> dict[str, list]:
    return {kind: [steps_of(rank, 2, kind, graphs=graphs) for graphs in (True, False)] for kind in kinds}


def test_steps_of_every_kind_are_those_of_ddp(ranks: Callable[[int], Ranks], one_thread: None) -> None:
    """Every optimiser, sums in bfloat16, a loss scale, frozen weights, a head that is not used, and an adapter."""
    first, second = ranks(2).run(both_ways, KINDS)
    for kind, ((values, weights), (wanted, wanted_weights)) in first.items():
        close = 3e-3 if kind in ("bfloat16 sums", "float16", "muon") else 1e-5
        assert values == pytest.approx(wanted, rel=close), kind
        torch.testing.assert_close(weights, wanted_weights, rtol=1e-3, atol=2e-4, msg=kind)
        torch.testing.assert_close(second[kind][0][1], weights, rtol=0, atol=0, msg=kind)
        alone, _ = steps_of(0, 1, kind, graphs=True)
        assert values == pytest.approx(alone, rel=close), kind
