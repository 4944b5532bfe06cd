"""Runs whose share of masked tokens falls in three phases, through the loop without Ray."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import FallingMasks
from pipeline.config.training import Batch, Checkpoints
from pipeline.train.checkpoint import State
from tests.conftest import tiers
from tests.unit.train.test_phases import Logged, kept, losses


@pytest.fixture(scope="module")
def config(tiny_config: Pretrain) -> Pretrain:
    """Steps 0 to 5 with 30% masks, 6 to 8 with 15%, 9 to 11 with 5%; the first two steps have fewer rows."""
    sampling = replace(tiny_config.sampling, masking=replace(tiny_config.sampling.masking, share=0.3))
    return replace(
        tiny_config,
        sampling=sampling,
        batch=Batch(rows_per_step=16, rows_per_slot=4, warmup_steps=2, warmup_rows=8),
        phases=FallingMasks(parts=(0.5, 0.25, 0.25)),
        checkpoint=Checkpoints(every=2, keep=2),
    )


def test_the_default_shares_are_those_of_mmbert(config: Pretrain) -> None:
    assert FallingMasks().later_shares(0.3) == (0.15, 0.05)
    phases = replace(config, phases=FallingMasks()).all_phases
    assert [(phase.first, phase.end) for phase in phases] == [(0, 4), (4, 8), (8, 12)]


@pytest.fixture(scope="module")
def whole(
    training, config: Pretrain, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Logged, list[State], torch.nn.Module, list[list[pa.Table]]]:
    """Metrics, states after each phase, module, and blocks of each phase of an undisturbed run."""
    folder, logged, states, taken = tmp_path_factory.mktemp("whole"), {}, [State()], []
    for _ in config.all_phases:
        taken.append([])
        state, module = training.run(config, folder, logged, kept(training.blocks(config, states[-1]), taken[-1]))
        states.append(state)
    return logged, states[1:], module, taken


def masked_share(blocks: list[pa.Table]) -> float:
    """Masked tokens as a share of all tokens, [CLS] and [SEP] included, as in google-research/bert."""
    rows = [row for block in blocks for row in block.to_pylist()]
    return sum(len(row["masked_positions"]) for row in rows) / sum(len(row["ids"]) for row in rows)


def test_each_phase_masks_its_share_of_rows_of_the_same_length(config: Pretrain, whole) -> None:
    _, states, _, taken = whole
    assert [state.step for state in states] == [6, 9, 12]
    assert [sum(block.num_rows for block in blocks) for blocks in taken] == [8 + 12 + 4 * 16, 3 * 16, 3 * 16]
    assert [masked_share(blocks) for blocks in taken] == pytest.approx([0.3, 0.15, 0.05], abs=0.02)
    assert {max(len(row["ids"]) for block in blocks for row in block.to_pylist()) for blocks in taken} == {32}
    assert [phase.batch.warmup_steps for phase in config.all_phases] == [2, 0, 0]


def test_each_phase_begins_at_the_window_after_the_last_of_the_phase_before(whole) -> None:
    _, _, _, taken = whole
    ends = [(blocks[0].to_pylist()[0], blocks[-1].to_pylist()[-1]) for blocks in taken]
    for (_, last), (first, _) in zip(ends, ends[1:]):
        later = (last["epoch"], last["window"] + 1) if last["epoch"] == first["epoch"] else (last["epoch"] + 1, 0)
        assert (first["epoch"], first["window"], first["row"]) == (*later, 0)


def test_held_out_text_is_masked_as_in_the_phase(whole) -> None:
    logged, _, _, _ = whole
    assert {logged[step]["heldout/maximum_length"] for step in (6, 9, 12)} == {32}
    assert sorted(losses(logged)) == list(range(1, 13))


@tiers("stop_at", first=(7, 9), second=(3, 6, 8, 10, 11))
def test_a_run_stopped_in_any_phase_goes_on_with_the_same_rows(
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
    last = whole[1][-1]
    assert (state.cursor, state.crc32, state.tokens) == (last.cursor, last.crc32, last.tokens)
    for (name, one), (_, other) in zip(module.state_dict().items(), whole[2].state_dict().items(), strict=True):
        assert torch.equal(one, other), name
