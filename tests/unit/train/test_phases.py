"""Runs whose batch warms up and whose last steps are longer, through the loop without Ray."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from torch import Tensor

from pipeline.config.jobs import Pretrain
from pipeline.config.model_parts import RotaryPositions
from pipeline.config.phases import TwoPhases
from pipeline.config.training import Batch, Checkpoints, Tracking, WarmupStableDecay
from pipeline.corpus.order import slots_of_rank
from pipeline.errors import CheckpointError, DataError
from pipeline.export.huggingface import copy_model
from pipeline.files import storage
from pipeline.model import encoder
from pipeline.model.rotary import Rotation, rotation
from pipeline.model.weights import model_settings
from pipeline.saved.checkpoints import folder_of, steps_saved
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import loop
from pipeline.train.checkpoint import State, roll_back_to
from tests.conftest import of_family, tiers

Logged = dict[int, dict[str, float]]
LOSSES = (
    "train/mlm_loss",
    "train/nsp_loss",
    "train/gradient_norm",
    "train/learning_rate",
    "stream/rows_crc32",
    "stream/tokens",
    "stream/epoch",
)


@pytest.fixture(scope="module")
def config(tiny_config: Pretrain) -> Pretrain:
    """Steps 0 to 7 of 2, 2, 3, 3, 4, ... slots of 4 rows to length 16, steps 8 to 11 of 4 slots of 2 rows to length
    32.
    """
    return replace(
        tiny_config,
        sampling=replace(tiny_config.sampling, maximum_length=16),
        batch=Batch(rows_per_step=16, rows_per_slot=4, warmup_steps=4, warmup_rows=8),
        phases=TwoPhases(share=1 / 3, maximum_length=32, rows_per_step=8, rows_per_slot=2),
        checkpoint=Checkpoints(every=3, keep=2),
    )


@pytest.fixture(scope="module")
def whole(
    training, config: Pretrain, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Logged, list[State], torch.nn.Module]:
    """Metrics that an undisturbed run logs, its states after both phases, and its module."""
    tmp_path = tmp_path_factory.mktemp("whole")
    logged: Logged = {}
    first, _ = training.run(config, tmp_path, logged)
    second, module = training.run(config, tmp_path, logged)
    return logged, [first, second], module


def losses(logged: Logged) -> dict[int, list[float]]:
    return {step: [metrics[name] for name in LOSSES] for step, metrics in logged.items() if "train/loss" in metrics}


def kept(blocks: list[pa.Table], taken: list[pa.Table]) -> Iterator[pa.Table]:
    for block in blocks:
        taken.append(block)
        yield block


def test_both_phases_are_one_sequence_of_steps(training, config: Pretrain, whole) -> None:
    logged, (first, second), _ = whole
    assert sorted(losses(logged)) == list(range(1, 13)) and (first.step, second.step) == (8, 12)
    rates = [logged[step]["train/learning_rate"] for step in range(1, 13)]
    assert rates == pytest.approx([2e-3 * min((step + 1) / 2, (12 - step) / 10) for step in range(12)])
    assert [logged[step]["heldout/maximum_length"] for step in (0, 8, 12)] == [16, 16, 32]
    assert second.heldout_before == first.heldout_before == logged[0]


def test_the_rows_of_each_step(training, config: Pretrain, tmp_path: Path) -> None:
    taken: list[pa.Table] = []
    state, _ = training.run(config, tmp_path, {}, kept(training.blocks(config), taken))
    assert [block.num_rows for block in taken] == [4] * (2 + 2 + 3 + 3 + 4 * 4)
    assert max(len(ids) for block in taken for ids in block["ids"].to_pylist()) == 16
    last = taken[-1].to_pylist()[-1]
    later: list[pa.Table] = []
    training.run(config, tmp_path, {}, kept(training.blocks(config, state), later))
    assert [block.num_rows for block in later] == [2] * 16
    assert max(len(ids) for block in later for ids in block["ids"].to_pylist()) == 32
    first = later[0].to_pylist()[0]
    assert last["row"] + 1 < last["rows_in_window"]  # in mid-window, so that the rest of it is passed over
    assert (first["epoch"], first["window"], first["row"]) == (last["epoch"], last["window"] + 1, 0)


@tiers("stop_at", first=(4, 8, 10), second=(2, 5, 9, 11))
def test_a_run_stopped_in_either_phase_goes_on_as_if_never_stopped(
    training, config: Pretrain, whole, tmp_path: Path, stop_at: int
) -> None:
    logged: Logged = {}
    with pytest.raises(KeyboardInterrupt):
        for _ in config.all_phases:
            training.run(config, tmp_path, logged, stop_at=stop_at)
    assert max(losses(logged)) == stop_at - 1
    state = State()
    while state.step < 12:
        state, module = training.run(config, tmp_path, logged)
    assert losses(logged) == losses(whole[0])
    assert (state.cursor, state.crc32, state.tokens) == (whole[1][1].cursor, whole[1][1].crc32, whole[1][1].tokens)
    for (name, one), (_, other) in zip(module.state_dict().items(), whole[2].state_dict().items(), strict=True):
        assert torch.equal(one, other), name


def test_slots_are_dealt_from_the_step_of_the_phase_at_which_it_was_resumed(
    training, config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dealt: list[tuple[int, int]] = []

    def watched(step: int, start: int, batch: Batch, rank: int, world: int) -> list[int]:
        dealt.append((step, start))
        return slots_of_rank(step, start, batch, rank, world)

    monkeypatch.setattr(loop, "slots_of_rank", watched)
    training.run(config, tmp_path, {})
    with pytest.raises(KeyboardInterrupt):
        training.run(config, tmp_path, {}, stop_at=10)
    training.run(config, tmp_path, {})
    assert dealt[8:] == [(0, 0), (1, 0), (1, 1), (2, 1), (3, 1)]


def test_a_phase_ends_with_a_point_and_a_checkpoint(training, config: Pretrain, tmp_path: Path) -> None:
    logged: Logged = {}
    training.run(replace(config, tracking=Tracking(every=5), checkpoint=Checkpoints(every=100)), tmp_path, logged)
    assert sorted(losses(logged)) == [5, 8] and steps_saved(str(tmp_path)) == [8]


def test_a_decayed_run_grows_as_if_it_had_never_decayed(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    short = replace(
        tiny_config,
        schedule=WarmupStableDecay(warmup_steps=2, decay_share=0.5),
        checkpoint=Checkpoints(every=4, keep=1),
    )
    logged: Logged = {}
    training.run(short, tmp_path / "grown", logged)
    assert steps_saved(str(tmp_path / "grown")) == [
        6,
        12,
    ]  # the decay begins at step 6, in between two checkpoints of every 4 steps
    roll_back_to(str(tmp_path / "grown"), 6)
    assert steps_saved(str(tmp_path / "grown")) == [6]
    longer, whole = replace(short, steps=16), {}
    state, module = training.run(longer, tmp_path / "grown", logged)
    other, undisturbed = training.run(longer, tmp_path / "whole", whole)
    assert (
        losses(logged) == losses(whole) and state.crc32 == other.crc32 and sorted(losses(whole)) == list(range(1, 17))
    )
    assert torch.equal(module.words, undisturbed.words)


def test_without_the_checkpoint_of_its_start_a_decay_stays(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    training.run(replace(tiny_config, steps=2), tmp_path, {})
    with pytest.raises(
        CheckpointError,
        match="step-00000001 is damaged .manifest.json is missing., but the run must continue from it to train more "
        "steps: choose another --name",
    ):
        roll_back_to(str(tmp_path), 1)
    assert steps_saved(str(tmp_path)) == [2]


def test_rows_of_the_first_phase_do_not_pass_for_the_second(training, config: Pretrain, tmp_path: Path) -> None:
    first = replace(config, phases=replace(config.phases, maximum_length=16))
    state, _ = training.run(config, tmp_path, {})
    going_on = training.blocks(first, replace(state, step=7))  # the rows after the last one, in its window
    with pytest.raises(DataError, match="^step 8 got rows out of order"):
        training.run(config, tmp_path, {}, iter([block.slice(start, 2) for block in going_on for start in (0, 2)]))


def test_the_second_phase_has_its_own_rotary_angles(
    training,
    config: Pretrain,
    tiny_vocabulary: Vocabulary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Layers with global attention get the phase's angles, in a resumed run and in the exported files too."""
    modernbert = of_family("modernbert", config, tiny_vocabulary)
    positions = RotaryPositions(theta=500.0, local_theta=50.0)
    config = replace(
        modernbert,
        model=replace(modernbert.model, positions=positions),
        phases=replace(config.phases, theta=7_000.0),
    )
    used: list[float] = []

    def watched(positions_T: Tensor, width: int, theta: float) -> Rotation:
        used.append(theta)
        return rotation(positions_T, width, theta)

    monkeypatch.setattr(encoder, "rotation", watched)

    def thetas_of_run(stop_at: int | None = None) -> set[float]:
        used.clear()
        with pytest.raises(KeyboardInterrupt) if stop_at else nullcontext():
            training.run(config, tmp_path, {}, stop_at=stop_at)
        return set(used)

    assert thetas_of_run() == {500.0, 50.0}
    assert thetas_of_run(stop_at=11) == {7_000.0, 50.0}
    assert steps_saved(str(tmp_path))[-1] == 9  # inside the second phase
    assert thetas_of_run() == {7_000.0, 50.0}
    copy_model(folder_of(str(tmp_path), 12), tmp_path / "export")
    exported = storage.read_json(f"{tmp_path}/export/config.json")
    assert model_settings(exported).positions == replace(positions, theta=7_000.0)
