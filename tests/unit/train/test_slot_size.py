from dataclasses import replace

import pytest

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import SeveralPhases, TwoPhases
from pipeline.config.placement import Placement
from pipeline.config.training import Batch
from pipeline.presets.table import PRESETS
from pipeline.saved.naming import with_name
from pipeline.train.plan import loads, plan_text, read_prices
from pipeline.train.slot_size import advised_rows, slot_advice

BASE = PRESETS["bert-base"]


@pytest.mark.parametrize(
    ("batch", "workers", "rows"),
    [
        (Batch(rows_per_step=256, rows_per_slot=32), 1, 256),
        (Batch(rows_per_step=4_096, rows_per_slot=32), 8, 256),  # as many tokens as keep a GPU busy
        (Batch(rows_per_step=256, rows_per_slot=32), 4, 64),  # each worker has a slot
        (Batch(rows_per_step=96, rows_per_slot=32), 2, 48),
        (Batch(rows_per_step=512, rows_per_slot=32, warmup_steps=10, warmup_rows=64), 1, 64),
        (Batch(rows_per_step=7, rows_per_slot=7), 2, 1),
    ],
)
def test_the_rows_of_a_slot_divide_those_of_a_step(batch: Batch, workers: int, rows: int) -> None:
    config = replace(BASE, batch=batch, phases=Pretrain().phases)
    phase = config.all_phases[0]
    assert phase.sampling.row_length == 128 and advised_rows(phase, workers) == rows
    replace(batch, rows_per_slot=rows)  # raises ConfigError if the advice cannot be followed


def test_small_slots_are_told_with_a_setting_that_helps() -> None:
    off = Placement(graphs="off")
    config = replace(BASE, batch=Batch(rows_per_step=512, rows_per_slot=32), phases=Pretrain().phases, placement=off)
    assert slot_advice(config) == (
        "note: batch.rows_per_slot (32) gives a GPU 4,096 tokens at a time; it is faster with 32,768, if its memory is "
        "enough: --batch.rows-per-slot 256, or with --placement.graphs"
    )
    deberta = replace(PRESETS["deberta-base"], batch=config.batch, phases=config.phases)
    assert "--placement.graphs" not in str(slot_advice(deberta))
    busy = replace(config, batch=Batch(rows_per_step=512, rows_per_slot=128))  # graphs gain nothing here
    assert str(slot_advice(busy)).endswith("--batch.rows-per-slot 256")
    assert str(slot_advice(replace(config, workers=2))).endswith("256, or with --placement.graphs")
    assert str(slot_advice(replace(config, placement=Placement(graphs="on")))).endswith("--batch.rows-per-slot 256")
    assert slot_advice(replace(config, batch=Batch(rows_per_step=512, rows_per_slot=256))) is None
    assert slot_advice(replace(config, batch=Batch(rows_per_step=32, rows_per_slot=32))) is None
    phases = TwoPhases(maximum_length=512, rows_per_step=512, rows_per_slot=8)
    second = replace(config, batch=Batch(rows_per_step=512, rows_per_slot=256), phases=phases)
    assert "--phases.rows-per-slot 64" in str(slot_advice(second))
    third = replace(second, phases=SeveralPhases(maximum_lengths=(128, 512), rows_per_slot=(256, 8)))
    assert "--phases.rows-per-slot with 64 for phase 3" in str(slot_advice(third))


def test_the_plan_has_the_advice() -> None:
    config = with_name(replace(BASE, batch=Batch(rows_per_step=512, rows_per_slot=32)), "bert-base")
    assert str(slot_advice(config)) in plan_text(config, read_prices())


def test_the_plan_counts_one_launch_for_a_recorded_slot() -> None:
    eager = with_name(replace(BASE, placement=Placement(compile="off")), "bert-base")
    recorded = replace(eager, placement=Placement(compile="off", graphs="on"))
    texts = [plan_text(config, read_prices()) for config in (eager, recorded)]
    assert "operators per slot, which take" in texts[0] and "one per slot, for about" in texts[1]
    assert load_seconds(recorded) == 0 < load_seconds(eager)


def load_seconds(config: Pretrain) -> float:
    """The time in which the host launches a slot."""
    return next(loads(config)).slot_seconds
