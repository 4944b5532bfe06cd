from dataclasses import replace

import pytest
import torch

from pipeline.config.data import Sampling, TokenMasking, TwoCrops
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.objective import Contrastive
from pipeline.config.phases import FallingMasks, SeveralPhases, TwoPhases
from pipeline.config.placement import Placement
from pipeline.errors import ConfigError
from pipeline.objectives.utilisation import device_peak, utilisation_percent
from pipeline.train.hardware import out_of_memory_as_config_error, peak_memory_bytes

CPU = torch.device("cpu")


def test_memory_that_runs_out_says_what_to_lower() -> None:
    with pytest.raises(ConfigError) as told, out_of_memory_as_config_error(Pretrain(), Pretrain().phase_at(6), 7, CPU):
        torch.empty(1 << 60, dtype=torch.uint8)
    assert str(told.value) == (
        "out of memory on cpu at step 7: lower batch.rows_per_slot (32) or sampling.maximum_length (128), "
        "or set placement.recompute"
    )
    recomputing = replace(Pretrain(), placement=Placement(recompute=True))
    with (
        pytest.raises(ConfigError, match=r"sampling.maximum_length \(128\)$"),
        out_of_memory_as_config_error(recomputing, recomputing.phase_at(6), 7, CPU),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
    longer = replace(Pretrain(), steps=10, phases=TwoPhases())
    with (
        pytest.raises(
            ConfigError, match=r"step 10: lower phases.rows_per_slot \(8\) or phases.maximum_length \(512\), or"
        ),
        out_of_memory_as_config_error(longer, longer.phase_at(9), 10, CPU),
    ):
        raise MemoryError
    several = replace(longer, phases=SeveralPhases(maximum_lengths=(256, 512)))
    with (
        pytest.raises(
            ConfigError,
            match=r"lower phases.rows_per_slot \(16\) or phases.maximum_lengths \(256\), .* start a new one: "
            "--phases.rows-per-slot with 8 for phase 2",
        ),
        out_of_memory_as_config_error(several, several.phase_at(3), 4, torch.device("cuda")),
    ):
        raise MemoryError
    sampling = Sampling(masking=TokenMasking(share=0.3))
    falling = replace(Pretrain(), steps=9, sampling=sampling, phases=FallingMasks())
    with (
        pytest.raises(ConfigError, match=r"lower batch.rows_per_slot \(32\) or sampling.maximum_length \(128\)"),
        out_of_memory_as_config_error(falling, falling.phase_at(8), 9, CPU),
    ):
        raise MemoryError


def test_a_run_that_chose_its_slots_is_told_how_to_start_another() -> None:
    graphs = replace(Pretrain(), placement=Placement(graphs="on"))
    with (
        pytest.raises(
            ConfigError,
            match=r"or set placement.recompute and placement.graphs off; this run keeps its slots, so start a new one: "
            r"--batch.rows-per-slot 16$",
        ),
        out_of_memory_as_config_error(graphs, graphs.phase_at(6), 7, torch.device("cuda")),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")


def test_contrastive_steps_also_need_memory_for_all_rows() -> None:
    config = Pretrain(objective=Contrastive(), sampling=Sampling(pairs=TwoCrops()))
    with (
        pytest.raises(ConfigError, match=r"rows_per_slot \(32\) or batch.rows_per_step \(256\) or sampling.maximum_l"),
        out_of_memory_as_config_error(config, config.phase_at(0), 1, CPU),
    ):
        raise MemoryError


def test_other_errors_pass() -> None:
    with (
        pytest.raises(RuntimeError, match="^something else$"),
        out_of_memory_as_config_error(Pretrain(), Pretrain().phase_at(6), 7, CPU),
    ):
        raise RuntimeError("something else")


def test_memory_in_use_is_more_than_a_tensor_that_is_held() -> None:
    held = torch.ones(1 << 26, dtype=torch.uint8)
    assert held.sum() > 0 and 1 << 26 < peak_memory_bytes(CPU) < 1 << 38


def test_utilisation_by_hand() -> None:
    # As in the formula's own test: (2304 + 320 + 60) operations a token at 2 layers of width 4; 6 tokens in 3 seconds,
    # 10,736 operations a second.
    config = replace(Pretrain(), model=Model(layers=2, width=4, heads=1, feed_forward=16))
    total = {"tokens": 6, "squares": 20, "masked": 1}
    assert utilisation_percent(config, 11, total, 3.0, 10_736) == pytest.approx(50)


def test_a_cpu_has_no_peak() -> None:
    assert device_peak(CPU, "bfloat16") is None


def test_memory_that_runs_out_elsewhere_says_so_too() -> None:
    with (
        pytest.raises(
            ConfigError, match=r"^out of memory on cpu outside of steps: lower batch.rows_per_slot \(32\) or"
        ),
        out_of_memory_as_config_error(Pretrain(), Pretrain().phase_at(0), None, CPU),
    ):
        raise MemoryError
