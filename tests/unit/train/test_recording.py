"""Which sizes are recorded, who agrees that it worked, and when several workers record."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.batch import NextSentenceBatch
from pipeline.config.jobs import Pretrain
from pipeline.config.placement import Placement
from pipeline.config.training import Batch
from pipeline.presets.table import PRESETS
from pipeline.saved.run import forget_setting, read_run, write_run
from pipeline.train import probe
from pipeline.train.automatic import GRAPHS, FreeMemory, Where, choice_text, with_choices, without_dropped_graphs
from pipeline.train.graphs import SHARES, capacity_of
from pipeline.train.overlap import overlap_problem, wait_share
from pipeline.train.plan import Machine
from pipeline.train.recording import examples_of, problem_on_any_rank
from tests.ranks import Ranks


@pytest.mark.parametrize("rows", [1, 4, 32])
def test_examples_have_every_size_of_a_slot(tiny_config: Pretrain, rows: int) -> None:
    config = replace(tiny_config, batch=Batch(rows_per_step=rows, rows_per_slot=rows))
    phase = config.phase_at(0)
    filled = [capacity_of(phase).fill(batch) for batch in examples_of(phase, 120)]
    assert len({(batch.tokens, batch.masked) for batch in filled}) == len(SHARES)
    assert [batch.tokens for batch in filled] == sorted((batch.tokens for batch in filled), reverse=True)
    assert {(batch.sequences, type(batch)) for batch in filled} == {(filled[0].sequences, NextSentenceBatch)}


def problem_of(rank: int) -> list[str | None]:
    """Record what works, and what fails on the second rank."""

    def fail() -> None:
        if rank == 1:
            raise RuntimeError("operation not permitted\nwhen stream is capturing")

    return [problem_on_any_rank(record, 2, f"worker {rank}") for record in (lambda: None, fail)]


def test_ranks_agree_on_the_problem_of_one(ranks: Callable[[int], Ranks]) -> None:
    assert ranks(2).run(problem_of) == [[None, "worker 1: operation not permitted"]] * 2


def of_workers(workers: int, rows_per_slot: int = 128) -> Pretrain:
    """BERT-base with a slot per worker."""
    preset = PRESETS["bert-base"]
    return replace(
        preset, workers=workers, batch=Batch(rows_per_step=workers * rows_per_slot, rows_per_slot=rows_per_slot)
    )


def test_a_share_of_waiting_by_hand() -> None:
    """Gradients of 4 bytes go twice over a network of 8 Gbit/s, but for a share of 1 / workers."""
    machine = Machine(
        name="a", chip="L4", gpus=1, cpus=4, on_demand=1.0, spot=1.0, utilisation=0.35, network_gigabits=8.0
    )
    config = of_workers(2)
    one, two = replace(config, workers=1), replace(config, placement=Placement(graphs="off"))
    assert wait_share(one, machine) == 0 and wait_share(two, machine) == wait_share(config, machine)
    slower = wait_share(config, replace(machine, network_gigabits=4.0))
    share = wait_share(config, machine)
    assert slower / (1 - slower) == pytest.approx(2 * share / (1 - share))


H100 = "NVIDIA H100 80GB HBM3"
NEEDS = "all workers on one machine, or a network that takes less than 5% of a step"


@pytest.mark.parametrize(
    ("config", "gpu", "gpus", "problem"),
    [
        (of_workers(1), "Foo", 1, None),
        (of_workers(8), "Foo", 8, None),
        (of_workers(8), H100, None, None),  # eight in a machine of the price table
        (of_workers(8), "H100 SXM", None, None),  # as a plan names it
        (of_workers(16), H100, 8, f"{NEEDS} (estimated: "),
        (of_workers(16, 1_024), H100, 8, None),  # eight times as much work for each reduction
        (of_workers(2), "NVIDIA L4", 1, f"{NEEDS} (estimated: "),
        (of_workers(16), "Foo", 8, f"{NEEDS} (its speed is not known)"),
        (of_workers(16), "no GPU answered", 8, f"{NEEDS} (its speed is not known)"),
    ],
)
def test_several_workers_record_on_one_machine_or_a_fast_network(
    config: Pretrain, gpu: str, gpus: float | None, problem: str | None
) -> None:
    found = overlap_problem(config, gpu, gpus)
    assert found is None if problem is None else str(found).startswith(problem)


def test_a_run_on_several_machines_keeps_ddp_and_says_why() -> None:
    memory = FreeMemory(gpu=H100, bytes=80_000_000_000, has_kernel=True)
    near, far = (Where(on_gpus=True, memory=memory, gpus=gpus) for gpus in (16, 8))
    graphs = [with_choices(of_workers(16), None, where)[0].placement.graphs for where in (near, far)]
    assert graphs == ["on", "off"]
    assert f"placement.graphs auto: off, they need {NEEDS} (estimated: " in choice_text(of_workers(16), far)


def test_a_restarted_run_has_no_graphs_where_they_were_dropped(tiny_config: Pretrain, tmp_path: Path) -> None:
    config = replace(tiny_config, placement=Placement(graphs="on"))
    write_run(str(tmp_path), {GRAPHS: "on", "seed": 1}, 12, "0" * 32, "corpus")
    graphs = []
    for _ in range(2):
        recorded = read_run(str(tmp_path))
        assert recorded is not None and recorded["steps"] == 12 and recorded["identity"]["seed"] == 1
        graphs.append(without_dropped_graphs(config, recorded["identity"]).placement.graphs)
        forget_setting(str(tmp_path), GRAPHS)
    assert graphs == ["on", "off"]


def test_the_most_gpus_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"CPU": 8.0}, {"GPU": 4.0, "CPU": 16.0}, {"GPU": 8.0, "other": 1.0}]
    monkeypatch.setattr(probe, "live_nodes", lambda: nodes)
    assert probe.gpus_of_machine(Placement()) == 8 and probe.gpus_of_machine(Placement(worker_resource="CPU")) == 4
    monkeypatch.setattr(probe, "live_nodes", lambda: nodes[:1])
    assert probe.gpus_of_machine(Placement()) == 0
