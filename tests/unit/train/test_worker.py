import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pipeline.bench.cases import Case, make_batch
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.corpus.stream import prefetch_first_block
from pipeline.errors import ConfigError, DataError, StorageUnavailable
from pipeline.objectives.masked import MaskedTokens
from pipeline.tracking.failures import Failure
from pipeline.train import hardware, worker
from pipeline.train.job import Job
from pipeline.train.worker import run, run_worker

CPU = torch.device("cpu")


def test_a_folder_that_only_the_driver_sees_is_refused_before_anything_is_trained(tiny_config, tmp_path) -> None:
    job = Job(
        config=replace(tiny_config, output="output"),
        folder=str(tmp_path / "output/runs/a"),
        stream=None,
        initial=None,
        words=None,
        blimp=None,
        tracker=None,
    )
    with pytest.raises(
        ConfigError,
        match=r"^output \(output\) is not the same folder on all machines: run.json of this run is missing "
        r"on .*; use a shared folder or a URL$",
    ):
        run_worker(job, CPU)


def test_every_error_of_a_worker_goes_to_the_tracker(tiny_config: Pretrain, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Failure] = []
    monkeypatch.setattr(worker, "get_device", lambda: CPU)
    monkeypatch.setattr(worker, "worker_name", lambda: "worker 0 on here")
    monkeypatch.setattr(worker.ray, "get", lambda value: value)
    job = Job(
        config=tiny_config,
        folder="f",
        stream=None,
        initial=None,
        words=None,
        blimp=None,
        tracker=SimpleNamespace(fail=SimpleNamespace(remote=told.append)),
    )
    for error in (
        StorageUnavailable("s3://b/x cannot be read now"),
        DataError("x is damaged"),
        RuntimeError("shapes differ"),
    ):

        def work(job: Job, device: torch.device, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(worker, "run_worker", work)
        with pytest.raises(type(error)):
            run({"job": job})
    assert [(one.kind, one.text) for one in told] == [
        ("transient", "s3://b/x cannot be read now"),
        ("final", "x is damaged"),
        ("unknown", "RuntimeError: shapes differ"),
    ]


def test_bfloat16_is_float32_within_its_rounding() -> None:
    settings = Model(
        layers=2, width=64, heads=2, feed_forward=128, maximum_positions=64, hidden_dropout=0.0, attention_dropout=0.0
    )
    module = MaskedTokens(settings, 30_522, torch.Generator().manual_seed(0))
    batch = make_batch(Case(size="tiny", rows=6, length=64, lengths="ragged", attention_dropout=False), seed=0)

    def step(enabled: bool) -> tuple[float, dict[str, torch.Tensor]]:
        with hardware.autocast_of("bfloat16" if enabled else "float32", CPU):
            loss = sum(total / count for total, count in module(batch).values())
        loss.backward()
        found = {name: parameter.grad for name, parameter in module.named_parameters()}
        module.zero_grad()
        return loss.item(), found

    (wanted, exact), (found, rounded) = step(False), step(True)
    assert found != wanted and found == pytest.approx(wanted, rel=2**-8)  # bfloat16 keeps 8 bits
    errors = {name: (rounded[name] - gradient).norm() for name, gradient in exact.items()}
    assert (
        torch.stack([*errors.values()]).norm()
        <= 4 * 2**-8 * torch.stack([gradient.norm() for gradient in exact.values()]).norm()
    )
    # Gradients that nearly cancel, those of two classes, keep less.
    assert all(errors[name] <= 0.1 * gradient.norm() for name, gradient in exact.items() if gradient.norm() > 1e-6)


def test_the_first_block_is_asked_for_before_it_is_wanted() -> None:
    asked = threading.Event()

    def blocks(count: int) -> Iterator[int]:
        asked.set()
        yield from range(count)

    found = prefetch_first_block(blocks(3))
    assert asked.wait(10)
    assert list(found) == [0, 1, 2] and list(prefetch_first_block(blocks(0))) == []


def test_stream_errors_are_raised_where_blocks_are_consumed() -> None:
    def damaged() -> Iterator[int]:
        raise OSError("gone")
        yield

    found = prefetch_first_block(damaged())
    with pytest.raises(OSError, match="^gone$"):
        next(found)
