import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain, with_usual_slots
from pipeline.config.phases import OnePhase, SeveralPhases, TwoPhases
from pipeline.config.placement import Placement
from pipeline.config.training import Batch
from pipeline.errors import ConfigError
from pipeline.files.storage import write_json
from pipeline.model.flops import GIGABYTES, PEAKS, known_chip
from pipeline.presets.table import PRESETS
from pipeline.saved.naming import default_name
from pipeline.saved.run import with_begun_name
from pipeline.train.automatic import GRAPHS, FreeMemory, Where, chosen_rows, with_choices
from pipeline.train.slot_memory import FREE_SHARE, fitting_rows, step_bytes

BASE = replace(PRESETS["bert-base"], phases=OnePhase(), name="mine")
H200 = Where(on_gpus=True, memory=FreeMemory(gpu="NVIDIA H200", bytes=141_000_000_000, has_kernel=True))
SMALL = Where(on_gpus=True, memory=FreeMemory(gpu="NVIDIA L4", bytes=8_000_000_000, has_kernel=True))
CPU = Where(on_gpus=False)


def rows_of(config: Pretrain, where: Where, recorded: dict[str, Any] | None = None) -> tuple[Any, ...]:
    """The rows per slot of all phases."""
    chosen, _ = with_choices(config, recorded, where)
    assert not any(phase.automatic for phase in chosen.all_phases)
    return tuple(phase.batch.rows_per_slot for phase in chosen.all_phases)


@pytest.mark.parametrize(
    ("changed", "where", "rows"),
    [
        ({}, H200, (256,)),
        ({}, CPU, (32,)),
        ({}, Where(on_gpus=True), (128,)),  # no GPU answered
        ({"workers": 4}, H200, (64,)),
        ({"workers": "1..8"}, H200, (32,)),
        ({"batch": Batch(rows_per_step=96)}, H200, (96,)),
        ({"batch": Batch(rows_per_step=8_192)}, H200, (256,)),
        ({"batch": Batch(rows_per_step=256, rows_per_slot=16)}, H200, (16,)),
        ({"batch": Batch(rows_per_step=512, warmup_steps=10, warmup_rows=64)}, H200, (32,)),
        ({"batch": Batch(rows_per_step=48)}, CPU, (24,)),
        ({"workers": 16}, CPU, (16,)),
        ({"phases": TwoPhases()}, H200, (256, 64)),
        ({"phases": TwoPhases()}, CPU, (32, 8)),
        ({"phases": TwoPhases(rows_per_slot=4)}, H200, (256, 4)),
        ({"phases": SeveralPhases(maximum_lengths=(256, 512), rows_per_step=(128, 256))}, H200, (256, 128, 64)),
        ({"phases": SeveralPhases(maximum_lengths=(256, 512))}, CPU, (32, 16, 8)),
        ({"phases": SeveralPhases(masking_shares=(0.1, 0.05))}, H200, (256, 256, 256)),
    ],
)
def test_rows_of_a_slot_by_device_workers_and_step(changed: dict[str, Any], where: Where, rows: tuple[int]) -> None:
    assert rows_of(replace(BASE, **changed), where) == rows


def test_a_slot_fits_the_free_memory() -> None:
    config = replace(BASE, batch=Batch(rows_per_step=4_096))
    phase, free = config.all_phases[0], SMALL.memory.bytes if SMALL.memory else 0
    fitting = fitting_rows(config, phase, free)
    assert step_bytes(config, phase, fitting) <= FREE_SHARE * free < step_bytes(config, phase, fitting + 1)
    rows = chosen_rows(config, phase, SMALL)
    assert rows <= fitting < 256 and 4_096 % rows == 0 and 2 * rows > fitting
    assert fitting_rows(config, phase, 1) == 1
    tesla = fitting_rows(config, phase, free, "Tesla T4")  # without bfloat16, numbers are twice as large
    assert tesla == pytest.approx(fitting / 2, abs=1)
    kept = replace(config, placement=Placement(recompute=True))
    assert fitting_rows(kept, phase, free) > 3 * fitting


def test_graphs_are_recorded_on_one_machine_where_a_step_can_be() -> None:
    def graphs(config: Pretrain, where: Where, recorded: dict[str, Any] | None = None) -> str:
        return with_choices(config, recorded, where)[0].placement.graphs

    off = replace(BASE, placement=Placement(graphs="off"))
    assert (graphs(BASE, H200), graphs(BASE, CPU), graphs(off, H200)) == ("on", "off", "off")
    two, near, far = replace(BASE, workers="1..2"), replace(H200, gpus=2), replace(H200, gpus=1)
    assert [graphs(two, where) for where in (near, far, H200)] == ["on", "off", "off"]
    assert graphs(two, far, {GRAPHS: "on"}) == "on", "a run that began on one worker"
    assert graphs(replace(PRESETS["electra-base"], name="a"), H200) == "off"
    t4 = Where(on_gpus=True, memory=FreeMemory(gpu="Tesla T4", bytes=16_000_000_000, has_kernel=False))
    narrow = replace(BASE.model, width=720, feed_forward=64)  # heads of width 60
    assert graphs(BASE, t4) == graphs(BASE, Where(on_gpus=True)) == graphs(replace(BASE, model=narrow), H200) == "off"
    assert graphs(replace(BASE, placement=Placement(precision="float32")), H200) == "off"
    assert graphs(BASE, H200, {}) == "off", "a run that began without graphs"
    assert graphs(BASE, H200, {GRAPHS: "on"}) == "on" and graphs(off, CPU, {GRAPHS: "on"}) == "off"
    on = replace(BASE, placement=Placement(graphs="on"))
    with pytest.raises(ConfigError) as refused:
        with_choices(on, None, CPU)
    assert str(refused.value) == (
        "placement.graphs (on) needs a GPU, but its workers have none: set placement.graphs auto or off"
    )
    with pytest.raises(ConfigError, match="needs Ampere or a later GPU, not Tesla T4: set"):
        with_choices(on, None, t4)
    with pytest.raises(ConfigError, match="needs heads whose width is a multiple of 8 up to 192, but it is 60: set"):
        with_choices(replace(on, model=narrow), None, H200)
    assert graphs(on, Where(on_gpus=True)) == "on", "the user knows the GPUs"
    for config, where, problem in (
        (BASE, CPU, "a GPU, but its workers have none"),
        (replace(BASE, placement=Placement(recompute=True)), H200, "layers that are not recomputed, but placement."),
    ):
        with pytest.raises(ConfigError) as refused:
            with_choices(config, {"batch.rows_per_slot": 32, GRAPHS: "on"}, where)
        assert str(refused.value).startswith(
            f"run mine started with CUDA graphs, with which dropout draws other numbers, and they need {problem}"
        )
        assert str(refused.value).endswith(": change this, or go on without them with --placement.graphs off")


def test_a_run_goes_on_with_its_slots_on_any_machine() -> None:
    recorded = {"batch.rows_per_slot": 64, "phases.rows_per_slot": 16}
    config = replace(BASE, phases=TwoPhases())
    assert [rows_of(config, where, recorded) for where in (H200, SMALL, CPU)] == [(64, 16)] * 3
    assert with_choices(config, recorded, H200)[1] is None
    assert rows_of(replace(BASE, batch=Batch(rows_per_slot=8)), CPU, recorded) == (8,), "refused later, as a difference"
    several = replace(BASE, phases=SeveralPhases(maximum_lengths=(256, 512)))
    assert rows_of(several, H200, {"batch.rows_per_slot": 64, "phases.rows_per_slot": [16, 4]}) == (64, 16, 4)
    with pytest.raises(ConfigError) as refused:
        with_choices(replace(config, workers=8), recorded, CPU)
    assert str(refused.value) == (
        "workers (8) must be at most 4, because run mine keeps the slots that it started with (64, 16 rows): use at "
        "most 4, or start another --name"
    )


def test_one_line_says_what_was_chosen_and_why() -> None:
    _, line = with_choices(BASE, None, H200)
    needed = step_bytes(BASE, BASE.all_phases[0], 256) / 1e9
    assert line == (
        "batch.rows_per_slot auto: 256 rows of 128 tokens, as many as keep a GPU busy (NVIDIA H200: 141 GB free, about "
        f"{needed:.1f} needed); placement.graphs auto: on; this run can go on with up to 1 worker; --workers 1..N "
        "leaves room for more"
    )
    assert with_choices(BASE, None, H200, goes_on=False)[1] == line.partition("; this run can go on")[0]
    shared = str(with_choices(replace(BASE, workers=8), None, H200)[1])
    assert "32 rows of 128 tokens, so that each worker has a slot (" in shared
    assert "placement.graphs auto: off, they need all workers on one machine, or a network that takes" in shared
    assert "graphs auto: on;" in str(with_choices(replace(BASE, workers=8), None, replace(H200, gpus=8))[1])
    assert "can go on with up to 8 workers;" in shared
    wide = replace(PRESETS["bert-large"], phases=OnePhase(), batch=Batch(rows_per_step=4_096))
    assert "tokens, what fits (NVIDIA L4: 8 GB free" in str(with_choices(wide, None, SMALL)[1])
    unknown = str(with_choices(BASE, None, Where(on_gpus=True))[1])
    assert "128 rows of 128 tokens, as many as keep a GPU busy (no GPU answered: 16 GB assumed, about 8" in unknown
    assert "placement.graphs auto: off, they need a GPU that answers;" in unknown
    small = replace(BASE, batch=Batch(rows_per_slot=32))
    assert str(with_choices(small, None, H200)[1]).startswith(
        "placement.graphs auto: on; this run can go on with up to"
    )
    assert "for more; note: batch.rows_per_slot (32) gives a GPU" in str(with_choices(small, None, H200)[1])
    given = replace(small, placement=Placement(graphs="off"))
    assert str(with_choices(given, None, H200)[1]).startswith("note: batch.rows_per_slot (32) gives a GPU")
    assert with_choices(BASE, None, CPU)[1] is None


def test_an_earlier_run_of_the_same_command_is_continued(tmp_path: Path) -> None:
    config = replace(PRESETS["bert-tiny"], output=str(tmp_path))
    names = [default_name("bert-tiny", each) for each in (config, with_usual_slots(config))]
    assert names == ["bert-tiny-6a94fb6a", "bert-tiny-d3b8cbca"]
    assert with_begun_name(config, "bert-tiny").name == names[0]
    write_json(f"{tmp_path}/runs/{names[1]}/run.json", {})
    assert with_begun_name(config, "bert-tiny").name == names[1]
    assert with_begun_name(replace(config, workers=4), "bert-tiny").name == names[1]
    assert with_begun_name(replace(config, seed=1), "bert-tiny").name not in names
    write_json(f"{tmp_path}/runs/{names[0]}/run.json", {})
    assert with_begun_name(config, "bert-tiny").name == names[0]
    assert with_begun_name(replace(config, name="own"), "bert-tiny").name == "own"
    assert flatten(config)["batch.rows_per_slot"] == "auto"


def test_gpus_are_known_by_the_beginning_of_their_names() -> None:
    assert GIGABYTES.keys() == PEAKS.keys()
    names = ("h100", "H100 PCIe", "NVIDIA H100 80GB HBM3", "l4", "a100", "Tesla T4")
    assert [known_chip(name) for name in names] == ["H100 SXM", "H100 PCIe", "H100 SXM", "L4", "A100", "T4"]
    with pytest.raises(ConfigError, match=re.escape("gpu (H1000) must be one of H100 SXM, H100 PCIe, ")):
        known_chip("H1000")
