"""Settings of phases: several phases by lists, and the kinds that are short forms of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipeline.command_line.command import Command
from pipeline.config.data import Sampling, TokenMasking, TwoCrops
from pipeline.config.flat import flatten, unflatten
from pipeline.config.jobs import Pretrain, with_slot_rows, with_usual_slots
from pipeline.config.model import Model
from pipeline.config.model_parts import RotaryPositions
from pipeline.config.objective import Contrastive
from pipeline.config.phases import FallingMasks, Phase, SeveralPhases, TwoPhases, split
from pipeline.config.training import Batch
from pipeline.errors import ConfigError
from pipeline.presets.table import PRESETS
from pipeline.saved.naming import default_name

THREE = SeveralPhases(
    parts=(0.7, 0.2, 0.1), maximum_lengths=(256, 512), rows_per_step=(128, 64), masking_shares=(0.3, 0.15)
)
SAMPLING = Sampling(maximum_length=128, masking=TokenMasking(share=0.4))
ROTARY = Model(positions=RotaryPositions())


def numbers(phase: Phase) -> tuple[Any, ...]:
    """First step, end, maximum length, share of masks, rows of a step and of a slot, rotary base."""
    sampling, batch = phase.sampling, phase.batch
    share, length = sampling.masking.share, sampling.maximum_length
    return phase.first, phase.end, length, share, batch.rows_per_step, batch.rows_per_slot, phase.theta


@pytest.mark.parametrize(
    ("phases", "workers", "expected"),
    [
        # A slot of 32 rows of 128 tokens on a CPU, then of half and a quarter of the rows.
        (
            THREE,
            1,
            [
                (0, 70, 128, 0.4, 256, 32, None),
                (70, 90, 256, 0.3, 128, 16, None),
                (90, 100, 512, 0.15, 64, 8, None),
            ],
        ),
        # 16 workers have a slot each: 256 / 16, 128 / 16 and 64 / 16 rows.
        (
            THREE,
            16,
            [(0, 70, 128, 0.4, 256, 16, None), (70, 90, 256, 0.3, 128, 8, None), (90, 100, 512, 0.15, 64, 4, None)],
        ),
        # Without parts, equal shares; without rows, those of the batch; the slots are given.
        (
            SeveralPhases(maximum_lengths=(64,), rows_per_slot=(4,), thetas=(500.0,)),
            1,
            [(0, 50, 128, 0.4, 256, 32, None), (50, 100, 64, 0.4, 256, 4, 500.0)],
        ),
        # Slots of shorter rows have no more than 32 rows.
        (
            SeveralPhases(maximum_lengths=(32,)),
            1,
            [(0, 50, 128, 0.4, 256, 32, None), (50, 100, 32, 0.4, 256, 32, None)],
        ),
    ],
)
def test_each_phase_has_its_own_numbers(phases: SeveralPhases, workers: int, expected: list[tuple[Any, ...]]) -> None:
    assert [numbers(phase) for phase in split(phases, 100, SAMPLING, Batch(), workers)] == expected


@pytest.mark.parametrize("steps", [10, 24, 101])  # no half steps, which two phases round from the end
@pytest.mark.parametrize(
    ("short", "listed"),
    [
        (
            TwoPhases(share=0.1, theta=9.0),
            SeveralPhases(parts=(0.9, 0.1), maximum_lengths=(512,), rows_per_step=(256,), thetas=(9.0,)),
        ),
        (
            TwoPhases(share=0.3, maximum_length=64, rows_per_step=32, rows_per_slot=4, masking_share=0.2),
            SeveralPhases(
                parts=(0.7, 0.3), maximum_lengths=(64,), rows_per_step=(32,), rows_per_slot=(4,), masking_shares=(0.2,)
            ),
        ),
        (FallingMasks(), SeveralPhases(masking_shares=(0.2, 0.0667))),
        (
            FallingMasks(masking_shares=(0.1,), parts=(0.25, 0.75)),
            SeveralPhases(masking_shares=(0.1,), parts=(0.25, 0.75)),
        ),
    ],
)
def test_the_other_kinds_are_short_forms(short: TwoPhases | FallingMasks, listed: SeveralPhases, steps: int) -> None:
    batch = Batch(warmup_steps=1, warmup_rows=64)
    assert split(short, steps, SAMPLING, batch, 2) == split(listed, steps, SAMPLING, batch, 2)


def test_lists_are_divided_by_commas_or_repeated() -> None:
    command = Command(prog="pretrain", about="", settings=Pretrain)
    words = ["phases:several-phases", "--phases.parts", "0.7,0.2,0.1", "--phases.maximum-lengths", "256,512"]
    words += ["--phases.rows-per-step", "128", "--phases.rows-per-step", "64", "--phases.masking-shares", "0.3,0.15"]
    assert command.parse(command.words(words)).phases == THREE
    assert (
        command.parse(command.words(["phases:two-phases", "--phases.rows-per-step", "64"])).phases.rows_per_step == 64
    )
    with pytest.raises(ConfigError, match=r"^phases.rows_per_step \('64,32'\) must be a whole number$"):
        command.parse(command.words(["phases:two-phases", "--phases.rows-per-step", "64,32"]))


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: replace(THREE, maximum_lengths=(128, 256, 512)),
            "phases.maximum_lengths (128, 256, 512) must have 2 values, one for each phase after the first, because "
            "phases.parts (0.7, 0.2, 0.1) gives 3 phases",
        ),
        (
            lambda: SeveralPhases(maximum_lengths=(256,), masking_shares=(0.3, 0.15)),
            "phases.masking_shares (0.3, 0.15) must have 1 value, one for each phase after the first, because "
            "phases.maximum_lengths (256) gives 2 phases",
        ),
        (
            lambda: replace(THREE, parts=(0.7, 0.2, 0.2)),
            "phases.parts (0.7, 0.2, 0.2) must be above 0 and add up to 1, but they add up to 1.1",
        ),
        (lambda: replace(THREE, parts=(1.0,)), "phases.parts (1) must have a value for each phase"),
        (
            lambda: Pretrain(phases=SeveralPhases(parts=(0.5, 0.5))),
            "phases (several-phases) needs what changes: set phases.maximum_lengths, phases.rows_per_step, "
            "phases.rows_per_slot, phases.masking_shares or phases.thetas",
        ),
        (
            lambda: Pretrain(steps=4, phases=THREE),
            "phases.parts (0.7, 0.2, 0.1) of steps (4) leaves a phase without steps: set more steps, or choose "
            "phases:one-phase",
        ),
        (
            lambda: Pretrain(model=Model(maximum_positions=256), phases=THREE),
            "phases.maximum_lengths (512) must be at most model.maximum_positions (256)",
        ),
        (lambda: replace(THREE, masking_shares=(0.3, 1.5)), "phases.masking_shares (1.5) must lie between 0 and 1"),
        (lambda: replace(THREE, maximum_lengths=(256, 7)), "phases.maximum_lengths (7) must be at least 8"),
        (lambda: replace(THREE, rows_per_step=(0, 64)), "phases.rows_per_step (0) must be at least 1"),
        (lambda: replace(THREE, rows_per_slot=(16, 0)), "phases.rows_per_slot (0) must be at least 1"),
        (lambda: replace(THREE, thetas=(0.0, 1.0)), "phases.thetas (0.0) must be above 0"),
        (
            lambda: replace(THREE, rows_per_slot=(16, 48)),
            "phases.rows_per_step (64) must be a multiple of phases.rows_per_slot (48)",
        ),
        (
            lambda: Pretrain(phases=SeveralPhases(rows_per_slot=(48,))),
            "batch.rows_per_step (256) must be a multiple of phases.rows_per_slot (48)",
        ),
        (
            lambda: replace(THREE, rows_per_step=(128, 262)),
            "phases.rows_per_step (262) divides steps into slots of 2 (phases.rows_per_slot auto): use a multiple of "
            "32, or set phases.rows_per_slot",
        ),
        (
            lambda: Pretrain(workers=3, phases=replace(THREE, rows_per_slot=(16, 32))),
            "workers (3) must be at most the slots of a step (2 = phases.rows_per_step 64 / phases.rows_per_slot 32): "
            "use fewer workers or --phases.rows-per-slot with 16 for phase 3 (or auto)",
        ),
        (
            lambda: Pretrain(phases=SeveralPhases(thetas=(9.0,))),
            "phases.thetas (9.0) needs model.positions:rotary-positions, but model.positions is LearnedPositions: "
            "leave phases.thetas out",
        ),
        (
            lambda: Pretrain(sampling=Sampling(pairs=TwoCrops()), objective=Contrastive(), phases=THREE),
            "phases.masking_shares (0.3, 0.15) has no effect with objective contrastive, which masks no tokens: leave "
            "it out",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == problem


def test_lists_come_back_from_a_record_and_names_differ() -> None:
    config = replace(PRESETS["bert-tiny"], phases=THREE)
    assert unflatten(Pretrain, flatten(config)) == config
    others = [replace(config, phases=replace(THREE, masking_shares=(0.3, share))) for share in (0.1, 0.15)]
    assert default_name("a", config) == default_name("a", others[1]) != default_name("a", others[0])


def test_angles_of_the_first_phase_are_those_of_the_model_and_each_later_phase_has_its_own() -> None:
    config = Pretrain(model=ROTARY, phases=SeveralPhases(thetas=(20.0, 30.0)))
    bases, model = [], config.model
    for phase in config.all_phases:  # from phase to phase, as the training loop does
        model = phase.model(model)
        bases.append(model.positions.theta)
    assert bases == [RotaryPositions().theta, 20.0, 30.0]


def test_rows_of_slots_are_set_in_the_phases_that_have_their_own() -> None:
    config = Pretrain(phases=THREE)
    assert [phase.automatic for phase in config.all_phases] == [True, True, True]
    chosen = with_slot_rows(config, [64, 32, 2])
    assert [phase.batch.rows_per_slot for phase in chosen.all_phases] == [64, 32, 2]
    assert [phase.automatic for phase in chosen.all_phases] == [False, False, False]
    assert with_usual_slots(config).phases == replace(THREE, rows_per_slot=(16, 8))
    masks = Pretrain(phases=SeveralPhases(masking_shares=(0.1,)))
    assert [phase.automatic for phase in masks.all_phases] == [True, False]
    assert [phase.batch.rows_per_slot for phase in with_slot_rows(masks, [64]).all_phases] == [64, 64]
    assert with_slot_rows(masks, [64]).phases == masks.phases
