"""Several phases in one process: the steps, checkpoints and weights of a run with a new process for each phase."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from pipeline.config.jobs import Pretrain
from pipeline.config.model_parts import RotaryPositions
from pipeline.config.phases import Phase, SeveralPhases
from pipeline.config.placement import Placement
from pipeline.config.training import Checkpoints, Evaluation
from pipeline.model.encoder import encoders_in
from pipeline.saved.checkpoints import steps_saved
from pipeline.train import loop
from pipeline.train.checkpoint import State
from pipeline.train.compiling import compiled
from pipeline.train.loop import train_phases
from pipeline.train.work import Work
from tests.conftest import tiers
from tests.unit.train.test_phases import Logged, losses

PHASES = SeveralPhases(
    parts=(0.5, 0.25, 0.25),
    maximum_lengths=(16, 24),
    rows_per_step=(16, 8),
    rows_per_slot=(8, 2),
    masking_shares=(0.4, 0.2),
    thetas=(700.0, 900.0),
)


@pytest.fixture(scope="module")
def config(tiny_config: Pretrain) -> Pretrain:
    """Steps 0 to 5 of 4 slots of 4 rows to length 32, 6 to 8 of 2 slots of 8 rows to length 16, 9 to 11 of 4 slots of 2
    rows to length 24.
    """
    model = replace(tiny_config.model, positions=RotaryPositions(theta=500.0), block="pre-norm")
    return replace(tiny_config, model=model, phases=PHASES, checkpoint=Checkpoints(every=4, keep=9))


Run = tuple[Logged, State, torch.nn.Module]
"""Metrics, last state and module."""


@pytest.fixture(scope="module")
def whole(training, config: Pretrain, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a new process for each phase."""
    folder, logged = tmp_path_factory.mktemp("whole"), {}
    for _ in config.all_phases:
        state, module = training.run(config, folder, logged)
    return logged, state, module


def assert_same(found: Run, whole: Run) -> None:
    (logged, state, module), (wanted, end, other) = found, whole
    assert losses(logged) == losses(wanted) and sorted(losses(logged)) == list(range(1, 13))
    assert (state.step, state.cursor, state.crc32, state.tokens) == (12, end.cursor, end.crc32, end.tokens)
    for (name, one), (_, two) in zip(module.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(one, two), name


def test_phases_follow_each_other_in_one_process(training, config: Pretrain, whole, tmp_path: Path) -> None:
    logged: Logged = {}
    state, module = training.run_phases(config, tmp_path, logged)
    assert_same((logged, state, module), whole)
    assert [logged[step]["heldout/maximum_length"] for step in (0, 6, 9, 12)] == [32, 32, 16, 24]
    assert steps_saved(str(tmp_path)) == [4, 6, 8, 9, 12]


@tiers("stop_at", first=(8,), second=(3, 6, 7, 9, 10, 11))
def test_a_stopped_run_goes_on_over_the_borders_of_phases(
    training, config: Pretrain, whole, tmp_path: Path, stop_at: int
) -> None:
    logged: Logged = {}
    with pytest.raises(KeyboardInterrupt):
        training.run_phases(config, tmp_path, logged, stop_at=stop_at)
    assert max(losses(logged)) == stop_at - 1
    state, module = training.run_phases(config, tmp_path, logged)
    assert_same((logged, state, module), whole)


def test_a_finished_run_opens_no_phase(training, config: Pretrain, tmp_path: Path) -> None:
    def opened(config: Pretrain, phase: Phase, state: State) -> loop.Opened:
        raise AssertionError

    done = State(step=12)
    module = training.module(config)
    assert train_phases(config, opened, module, torch.optim.SGD(module.parameters()), done) == done
    (theta,) = {encoder.settings.positions.theta for encoder in encoders_in(module)}
    assert theta == config.phase_at(12).theta != config.model.positions.theta, "it is evaluated as it was trained"


def test_no_phase_compiles_shapes_again(training, tiny_config: Pretrain, tmp_path: Path) -> None:
    """Lengths, rows and masks change; the graphs are those of the first phase, for training and evaluation."""
    config = replace(
        tiny_config,
        steps=3,
        model=replace(tiny_config.model, layers=1),
        phases=replace(PHASES, parts=(), thetas=()),
        evaluation=Evaluation(every=100, rows=8),
    )
    compilations, counter = [], CompileCounter()
    open_phase = training.opener(tmp_path, {})

    @contextmanager
    def opened(config: Pretrain, phase: Phase, state: State) -> Iterator[tuple[Work, Iterator[pa.Table]]]:
        compilations.append(counter.frame_count)
        with open_phase(config, phase, state) as inputs:
            yield inputs

    torch._dynamo.reset()
    module, optimizer, state = training.start(config, tmp_path)
    with compiled(module, backend=counter):
        train_phases(config, opened, module, optimizer, state)
    torch._dynamo.reset()
    compilations.append(counter.frame_count)
    assert compilations[0] == 0 < compilations[1] and compilations[1:] == [compilations[1]] * 3


def test_later_phases_have_no_graphs_where_a_new_run_could_not_record(
    training, config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[str] = []

    def unrecorded(work: Work, *others: object) -> None:
        wanted.append(work.config.placement.graphs)

    monkeypatch.setattr(loop, "recorded_steps", unrecorded)
    one_step_each = replace(config, steps=3, phases=replace(PHASES, parts=()), placement=Placement(graphs="on"))
    training.run_phases(one_step_each, tmp_path, {})
    assert wanted == ["on", "off", "off"]
