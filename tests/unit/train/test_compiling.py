"""What is compiled, as how many graphs, and compiled code on several workers."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.testing import CompileCounter

from pipeline.bench.step import Case, make_batch
from pipeline.config.model import Model
from pipeline.config.placement import Placement
from pipeline.config.training import AdamW
from pipeline.errors import ConfigError
from pipeline.objectives.pretraining import BertPretraining
from pipeline.presets import PRESETS
from pipeline.train import compiling
from pipeline.train.compiling import compiled, compiles
from pipeline.train.failures import failure_of
from pipeline.train.optim import build_optimizer
from pipeline.train.step import Compute, distributed, train_step

CPU = torch.device("cpu")
VOCABULARY = 4_000
BUCKET_BYTES = 25 << 20
"""DistributedDataParallel's default."""


def chosen(preset: str, **placement: object) -> tuple[bool, str]:
    """Whether a preset's first phase is compiled on a CPU, and what is said."""
    config, said = PRESETS[preset], []
    config = replace(config, placement=Placement(**placement))
    return compiles(config, 30_522, CPU, config.phase_at(0), said.append), said[0]


def test_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.shutil, "which", lambda name: "/usr/bin/g++")
    assert chosen("bert-tiny") == (False, "torch.compile is off (too short a run to pay)")
    assert (
        chosen("bert-tiny", compile="on")
        == chosen("bert-mini")
        == (True, "torch.compile is on: the first steps are slow")
    )
    assert chosen("bert-mini", compile="off") == (False, "torch.compile is off (placement.compile is off)")
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    assert chosen("bert-mini") == (False, "torch.compile is off (no C++ compiler)")
    with pytest.raises(ConfigError, match=r"^placement.compile is on and there is no C\+\+ compiler"):
        chosen("bert-mini", compile="on")


def test_dropout_that_would_be_drawn_anew_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.shutil, "which", lambda name: "/usr/bin/g++")
    assert chosen("bert-mini", recompute=True) == (False, "torch.compile is off (placement.recompute is on, on a CPU)")
    with pytest.raises(
        ConfigError,
        match=r"^placement.compile \(on\) with placement.recompute \(True\) would drop other elements in the "
        r"backward than in the forward on a CPU: leave one",
    ):
        chosen("bert-mini", compile="on", recompute=True)
    config = replace(PRESETS["bert-mini"], placement=Placement(compile="on", recompute=True))
    assert compiles(config, 30_522, torch.device("cuda"), config.phase_at(0), print)
    without = replace(config, model=replace(config.model, hidden_dropout=0.0, attention_dropout=0.0))
    assert compiles(without, 30_522, CPU, without.phase_at(0), print)


def test_batches_of_all_lengths_are_one_graph() -> None:
    module = BertPretraining(Model(layers=1, width=16, heads=2, feed_forward=32, maximum_positions=64), 1_000)
    torch._dynamo.reset()
    counter = CompileCounter()
    with compiled(module, counter):
        for rows, length, ragged in ((6, 64, True), (6, 64, False), (9, 48, True), (4, 33, False), (6, 64, True)):
            batch = make_batch(
                Case(size="tiny", rows=rows, length=length, ragged=ragged, attention_dropout=True), seed=rows
            )
            module(replace(batch, ids_T=batch.ids_T % 1_000, masked_labels_M=batch.masked_labels_M % 1_000))
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_an_error_of_the_compiler_says_that_it_can_be_left_out() -> None:
    def compile_fn() -> None: ...

    failure = failure_of(
        BackendCompilerFailed(compile_fn, AttributeError("'int' object has no attribute 'meta'"), None), "worker 0"
    )
    assert (
        failure.text
        == "BackendCompilerFailed: backend='compile_fn' raised: AttributeError: 'int' object has no attribute 'meta'"
    )
    assert failure.remedy == "placement.compile off runs without the compiler, " and failure.kind == "unknown"


def losses(rank: int, backend: str | None, *, recompute: bool = False, dropout: float = 0.1) -> list[float]:
    """This rank's losses in two steps of two ranks, on batches of different sizes."""
    settings = Model(layers=2, width=768, heads=12, feed_forward=3_072, hidden_dropout=dropout, attention_dropout=0.0)
    module = BertPretraining(settings, VOCABULARY, torch.Generator().manual_seed(0)).train()
    assert sum(weight.nbytes for weight in module.parameters()) > 2 * BUCKET_BYTES
    module.encoder.recompute = recompute
    optimizer, found = build_optimizer(AdamW(), module), []
    objective = distributed(module, CPU, 2)
    with compiled(module, backend) if backend else nullcontext():
        for step in range(2):
            batch = make_batch(
                Case(size="base", rows=2, length=16 + 2 * step, ragged=True, attention_dropout=False),
                seed=2 * step + rank,
            )
            batch = replace(batch, ids_T=batch.ids_T % VOCABULARY, masked_labels_M=batch.masked_labels_M % VOCABULARY)
            compute = Compute(device=CPU, autocast=torch.autocast("cpu", enabled=False), seed=0, world=2)
            sums, _ = train_step(
                objective, optimizer, [(0, batch)], {"mlm": 10, "nsp": 4}, compute, step=step, rate=1e-3, clip_norm=1.0
            )
            found.append(float(sum(sums.values())))
    return found


def rank_of_two(rank: int, folder: str) -> None:
    """Write down this process's losses in eager and compiled code, and in both without dropout, recomputed where
    compiled.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    backend = "aot_eager"
    pairs = (
        [losses(rank, None), losses(rank, backend)],
        [losses(rank, None, dropout=0.0), losses(rank, backend, dropout=0.0, recompute=True)],
    )
    Path(folder, f"{rank}.json").write_text(json.dumps(pairs))
    dist.destroy_process_group()


@pytest.mark.timeout(600)  # two processes that import torch and its compiler
def test_two_workers_train_compiled_code_as_they_train_eager_code(tmp_path: Path) -> None:
    mp.spawn(rank_of_two, (str(tmp_path),), nprocs=2)
    for rank in (0, 1):
        for eager, found in json.loads((tmp_path / f"{rank}.json").read_text()):
            assert eager[0] != eager[1] and found == pytest.approx(eager, rel=1e-6)
