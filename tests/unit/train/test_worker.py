import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from pipeline.bench.step import Case, make_batch
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.training import Placement
from pipeline.errors import AwayError, ConfigError, DataError, PipelineError
from pipeline.objectives.pretraining import BertPretraining
from pipeline.presets import PRESETS
from pipeline.train import worker
from pipeline.train.worker import Job, begun, compiles, run, work_on

CPU = torch.device("cpu")


def chosen(preset: str, **placement: object) -> tuple[bool, str]:
    """Whether a preset's first phase is compiled on a CPU, and what is said."""
    config, said = PRESETS[preset], []
    config = replace(config, placement=Placement(**placement))
    return compiles(config, 30_522, CPU, config.phase_at(0), said.append), said[0]


def test_a_folder_that_only_the_driver_sees_is_refused_before_anything_is_trained(tiny_config, tmp_path) -> None:
    job = Job(config=replace(tiny_config, output="output"), folder=str(tmp_path / "output/runs/a"), stream=None, initial=None, words=None, tracker=None)
    with pytest.raises(ConfigError, match=r"^output \(output\) is not the same folder on all machines: run.json of this run is not there on .*; use a shared folder or a URL$"):
        work_on(job, CPU)


def test_storage_that_is_away_ends_a_start_and_not_the_run(tiny_config: Pretrain, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[PipelineError] = []
    monkeypatch.setattr(worker, "get_device", lambda: CPU)
    monkeypatch.setattr(worker.ray, "get", lambda value: value)
    job = Job(config=tiny_config, folder="f", stream=None, initial=None, words=None, tracker=SimpleNamespace(fail=SimpleNamespace(remote=failed.append)))
    for error in (AwayError("s3://b/x cannot be read now"), DataError("x is damaged")):

        def work(job: Job, device: torch.device, error: PipelineError = error) -> None:
            raise error

        monkeypatch.setattr(worker, "work_on", work)
        with pytest.raises(type(error)):
            run({"job": job})
    assert [str(error) for error in failed] == ["x is damaged"]


def test_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.shutil, "which", lambda name: "/usr/bin/g++")
    assert chosen("bert-tiny") == (False, "torch.compile is off (too short a run to pay)")
    assert chosen("bert-tiny", compile="on") == chosen("bert-mini") == (True, "torch.compile is on: the first steps are slow")
    assert chosen("bert-mini", compile="off") == (False, "torch.compile is off (placement.compile is off)")
    monkeypatch.setattr(worker.shutil, "which", lambda name: None)
    assert chosen("bert-mini") == (False, "torch.compile is off (no C++ compiler)")
    with pytest.raises(ConfigError, match=r"^placement.compile is on and there is no C\+\+ compiler"):
        chosen("bert-mini", compile="on")


def test_batches_of_all_lengths_are_one_graph() -> None:
    module = BertPretraining(Model(layers=1, width=16, heads=2, feed_forward=32, maximum_positions=64), 1_000)
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(module, backend=counter, dynamic=True)
    for rows, length, ragged in ((6, 64, True), (6, 64, False), (9, 48, True), (4, 33, False), (6, 64, True)):
        batch = make_batch(Case(size="tiny", rows=rows, length=length, ragged=ragged, attention_dropout=True), seed=rows)
        compiled(replace(batch, ids_T=batch.ids_T % 1_000, masked_labels_M=batch.masked_labels_M % 1_000))
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_bfloat16_is_float32_within_its_rounding() -> None:
    settings = Model(layers=2, width=64, heads=2, feed_forward=128, maximum_positions=64, hidden_dropout=0.0, attention_dropout=0.0)
    module = BertPretraining(settings, 30_522, torch.Generator().manual_seed(0))
    batch = make_batch(Case(size="tiny", rows=6, length=64, ragged=True, attention_dropout=False), seed=0)

    def step(enabled: bool) -> tuple[float, dict[str, torch.Tensor]]:
        with worker.autocast_of("bfloat16" if enabled else "float32", CPU):
            loss = sum(total / count for total, count in module(batch).values())
        loss.backward()
        found = {name: parameter.grad for name, parameter in module.named_parameters()}
        module.zero_grad()
        return loss.item(), found

    (wanted, exact), (found, rounded) = step(False), step(True)
    assert found != wanted and found == pytest.approx(wanted, rel=2**-8)  # bfloat16 keeps 8 bits
    errors = {name: (rounded[name] - gradient).norm() for name, gradient in exact.items()}
    assert torch.stack([*errors.values()]).norm() <= 4 * 2**-8 * torch.stack([gradient.norm() for gradient in exact.values()]).norm()
    # Gradients that nearly cancel, those of two classes, keep less.
    assert all(errors[name] <= 0.1 * gradient.norm() for name, gradient in exact.items() if gradient.norm() > 1e-6)


def test_the_first_block_is_asked_for_before_it_is_wanted() -> None:
    asked = threading.Event()

    def blocks(count: int) -> Iterator[int]:
        asked.set()
        yield from range(count)

    found = begun(blocks(3))
    assert asked.wait(10)
    assert list(found) == [0, 1, 2] and list(begun(blocks(0))) == []


def test_what_a_stream_fails_with_comes_where_its_blocks_are_taken() -> None:
    def damaged() -> Iterator[int]:
        raise OSError("gone")
        yield

    found = begun(damaged())
    with pytest.raises(OSError, match="^gone$"):
        next(found)
