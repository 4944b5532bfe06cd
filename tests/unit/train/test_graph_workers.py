"""Slots that are filled and gradients that are kept as for CUDA graphs, on several workers, without recording."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.jobs import Pretrain
from pipeline.config.placement import Placement
from pipeline.config.training import Batch, Checkpoints
from pipeline.optim.build import build_optimizer
from pipeline.saved import checkpoints
from pipeline.train import checkpoint, flat_gradients
from pipeline.train.checkpoint import State
from pipeline.train.loop import train
from tests.conftest import Training
from tests.ranks import Ranks

Losses = dict[int, list[float]]
FIVE_SLOTS = Batch(rows_per_step=20, rows_per_slot=4)
"""Two workers have 3 and 2 slots, three have 2, 2 and 1."""


def losses_of(
    rank: int, world: int, training: Training, config: Pretrain, folder: Path, stop_at: int | None = None
) -> Losses:
    """Train on a rank's slots from the newest checkpoint to the end or a step; return losses and norms by step."""
    flat_gradients.PIECE = 1_000  # so that there are many pieces
    logged: dict[int, dict[str, float]] = {}
    module = training.module(config)
    optimizer = build_optimizer(config.optimizer, module)
    found = checkpoints.newest_sound(str(folder), lambda line: None)
    state = checkpoint.load(found, module, optimizer) if found else State()
    work = training.work(config, folder, logged, stop_at, state.step)
    work = replace(work, rank=rank, world=world, records=False, heldout=())
    try:
        train(work, iter(training.blocks(config, state)[rank::world]), module, optimizer, state)
    except KeyboardInterrupt:
        assert stop_at is not None
    names = ("train/loss", "train/mlm_loss", "train/nsp_loss", "train/gradient_norm")
    return {step: [metrics[name] for name in names] for step, metrics in logged.items() if "train/loss" in metrics}


def filled(config: Pretrain, **others: object) -> Pretrain:
    return replace(config, placement=Placement(graphs=True), **others)


@pytest.fixture
def config(without_dropout: Pretrain) -> Pretrain:
    return replace(without_dropout, batch=FIVE_SLOTS, steps=6, checkpoint=Checkpoints(every=2))


def in_turn(rank: int, *calls: tuple) -> list[Losses]:
    return [losses_of(rank, *call) for call in calls]


def test_filled_slots_of_one_to_three_workers_have_the_losses_of_ddp(
    training: Training, config: Pretrain, tmp_path: Path, ranks: Callable[[int], Ranks]
) -> None:
    """Also where two workers are stopped and three go on."""
    graphs = filled(config)
    alone = losses_of(0, 1, training, config, tmp_path / "plain")
    calls = [(2, training, each, tmp_path / name) for name, each in (("ddp", config), ("two", graphs))]
    (ddp, two, begun), _ = ranks(2).run(in_turn, *calls, (2, training, graphs, tmp_path / "stopped", 5))
    calls = [(3, training, graphs, tmp_path / name) for name in ("stopped", "three")]
    (continued, three), _, _ = ranks(3).run(in_turn, *calls)
    one = losses_of(0, 1, training, graphs, tmp_path / "one")
    assert [*ddp] == [1, 2, 3, 4, 5, 6] and [*begun] == [1, 2, 3, 4] and [*continued] == [5, 6]
    for found in (alone, one, two, three, begun | continued):
        for step, values in found.items():
            assert values == pytest.approx(ddp[step], rel=5e-6)
