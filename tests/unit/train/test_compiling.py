"""Compilation: which presets, how many graphs, and compiled code on several workers."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics
from torch.nn.parallel import DistributedDataParallel

from pipeline.batch import Batch
from pipeline.bench.cases import Case, Lengths, make_batch
from pipeline.config.jobs import Pretrain
from pipeline.config.model_parts import LocalAttention, RotaryPositions
from pipeline.config.placement import Placement
from pipeline.config.training import AdamW
from pipeline.errors import ConfigError
from pipeline.model.encoder import encoders_in
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.presets.table import PRESETS
from pipeline.tracking.failures import failure_of
from pipeline.train import compiling
from pipeline.train import step as training_step
from pipeline.train.compiling import CACHE, compiled, compiles
from pipeline.train.step import StepContext, distributed, train_step
from tests.ranks import Ranks

CPU = torch.device("cpu")
VOCABULARY = 4_000
BUCKET_MEGABYTES = 1
"""Size of a gradient bucket with two workers; torch's default, 25, needs a model that takes a minute."""
FIRST_BUCKET_BYTES = 1 << 20
"""Torch's size of the first bucket, which the size above does not change."""


def chosen(preset: str, **placement: object) -> tuple[bool, str]:
    """Whether a preset's first phase is compiled on a CPU, and what is said."""
    config, said = PRESETS[preset], []
    config = replace(config, placement=Placement(**placement))
    return compiles(config, 30_522, CPU, 0, said.append), said[0]


def test_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.shutil, "which", lambda name: "/usr/bin/g++")
    assert chosen("bert-tiny") == (False, "torch.compile is off (the run is too short to save time)")
    assert (
        chosen("bert-tiny", compile="on")
        == chosen("bert-mini")
        == (True, "torch.compile is on: the first steps are slow")
    )
    assert chosen("bert-mini", compile="off") == (False, "torch.compile is off (placement.compile is off)")
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    assert chosen("bert-mini") == (False, "torch.compile is off (no C++ compiler)")
    with pytest.raises(ConfigError, match=r"^placement.compile is on, but there is no C\+\+ compiler"):
        chosen("bert-mini", compile="on")


def test_dropout_that_would_be_drawn_anew_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.shutil, "which", lambda name: "/usr/bin/g++")
    assert chosen("bert-mini", recompute=True) == (
        False,
        "torch.compile is off (placement.recompute is on and the device is a CPU)",
    )
    with pytest.raises(
        ConfigError,
        match=r"^placement.compile \(on\) with placement.recompute \(True\) would recompute layers with another "
        r"dropout mask on a CPU: leave placement.compile or placement.recompute out$",
    ):
        chosen("bert-mini", compile="on", recompute=True)
    config = replace(PRESETS["bert-mini"], placement=Placement(compile="on", recompute=True))
    assert compiles(config, 30_522, torch.device("cuda"), 0, print)
    without = replace(config, model=replace(config.model, hidden_dropout=0.0, attention_dropout=0.0))
    assert compiles(without, 30_522, CPU, 0, print)


def module_of(preset: str, vocabulary_size: int, **parts: Any) -> Pretraining:
    """A module of a preset's family and objective, in other sizes."""
    chosen = PRESETS[preset]
    generator = torch.Generator().manual_seed(0)
    return build_objective(
        chosen.objective, chosen.sampling, replace(chosen.model, **parts), vocabulary_size, generator
    )


LOCAL = {"positions": RotaryPositions(), "attention": LocalAttention(window=8, global_every=2), "inner": "geglu"}


LOCAL_LAYERS = {"layers": 3, "block": "pre-norm", "bias": False, **LOCAL}


@pytest.mark.second
@pytest.mark.parametrize(
    ("preset", "parts", "world", "graphs"),
    [
        *((preset, {"layers": 1}, 1, 1) for preset in ("bert-tiny", "roberta-tiny", "electra-tiny")),
        ("bert-tiny", LOCAL_LAYERS, 1, 1),
        ("bert-tiny", {"layers": 3}, 2, 1),
        ("electra-tiny", {"layers": 1}, 2, 2),  # the generator's width is another
        ("bert-tiny", LOCAL_LAYERS, 2, 3),  # the first layer, which has no norm, a local and a global one
    ],
)
def test_batches_of_all_lengths_are_one_graph_or_one_for_each_kind_of_layer(
    preset: str, parts: dict[str, Any], world: int, graphs: int
) -> None:
    module = module_of(preset, 1_000, width=16, heads=2, feed_forward=32, maximum_positions=64, **parts)
    torch._dynamo.reset()
    counter = CompileCounter()
    with compiled(module, world, counter):
        shapes: tuple[tuple[int, int, Lengths], ...]
        shapes = ((6, 64, "ragged"), (6, 64, "full"), (9, 48, "ragged"), (4, 33, "full"), (6, 64, "ragged"))
        for rows, length, lengths in shapes:
            case = Case(
                size="tiny", rows=rows, length=length, lengths=lengths, attention_dropout=True, vocabulary_size=1_000
            )
            module(make_batch(case, seed=rows))
    assert counter.frame_count == graphs
    torch._dynamo.reset()


def test_rotary_positions_are_analysed_once() -> None:
    """A second analysis, of numbers that were symbols, is not in torch's cache and takes most of a later start."""
    torch._dynamo.reset()
    clear_compilation_metrics()
    module = module_of("modernbert-tiny", 1_000, layers=2)
    case = Case(size="tiny", rows=4, length=33, lengths="ragged", attention_dropout=False, vocabulary_size=1_000)
    with compiled(module, backend="aot_eager"):
        module(make_batch(case, seed=0))
    found = get_compilation_metrics()
    assert found and [metrics.restart_reasons for metrics in found if metrics.restart_reasons] == []
    torch._dynamo.reset()


@pytest.mark.second
@pytest.mark.parametrize(("world", "overlaps"), [(1, False), (2, True)])
def test_with_several_workers_gradients_are_complete_layer_by_layer(world: int, overlaps: bool) -> None:
    sizes: dict[str, Any] = {"layers": 3, "width": 16, "heads": 2, "feed_forward": 32, "attention_dropout": 0.0}
    module = module_of("bert-tiny", VOCABULARY, **sizes)
    torch._dynamo.reset()
    with compiled(module, world, "aot_eager"):
        sum(total for total, _ in module(batch_of(0, 0)).values()).backward()  # compiles
        loss = sum(total for total, _ in module(batch_of(0, 0)).values())
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            loss.backward()
    nodes = [
        event.name.rpartition("::")[2] for event in sorted(profile.events(), key=lambda event: event.time_range.start)
    ]
    kept = [name for name in nodes if name in ("CompiledFunctionBackward", "AccumulateGrad")]
    assert kept.count("CompiledFunctionBackward") == (3 if overlaps else 1)
    first = kept.index("AccumulateGrad")
    assert ("CompiledFunctionBackward" in kept[first:]) == overlaps
    torch._dynamo.reset()


@pytest.mark.long
def test_layers_of_every_family_have_the_gradients_of_eager_code(training, family_config: Pretrain) -> None:
    batch: Batch = training.work(family_config, Path("unused"), {}).heldout[0]
    found = []
    for choose in (nullcontext, partial(compiled, world=2, backend="aot_eager")):
        module = training.module(family_config).eval()
        torch._dynamo.reset()
        torch.manual_seed(0)  # the samples of replaced tokens
        with choose(module):
            sum(total for total, _ in module(batch).values()).backward()
        found.append({name: part.grad for name, part in module.named_parameters() if part.grad is not None})
    eager, by_layer = found
    assert eager.keys() == by_layer.keys() != set()
    for name, gradient in eager.items():
        torch.testing.assert_close(by_layer[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
    torch._dynamo.reset()


def test_compiled_code_is_kept_in_the_cache_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for before, after in ((None, f"{tmp_path}/bertstream/compiled"), ("/mine", "/mine")):
        monkeypatch.setenv(CACHE, "")
        monkeypatch.delenv(CACHE) if before is None else monkeypatch.setenv(CACHE, before)
        with compiled(nn.Linear(1, 1), backend="eager"):
            assert os.environ[CACHE] == after
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv(CACHE)
    with compiled(nn.Linear(1, 1), backend="eager"):
        assert not os.environ.get(CACHE, "").startswith(str(tmp_path))


def test_an_error_of_the_compiler_says_that_it_can_be_left_out() -> None:
    def compile_fn() -> None: ...

    failure = failure_of(
        BackendCompilerFailed(compile_fn, AttributeError("'int' object has no attribute 'meta'"), None), "worker 0"
    )
    assert (
        failure.text
        == "BackendCompilerFailed: backend='compile_fn' raised: AttributeError: 'int' object has no attribute 'meta'"
    )
    assert failure.remedy == "placement.compile off runs without the compiler; " and failure.kind == "unknown"


def batch_of(rank: int, step: int) -> Batch:
    """A rank's batch of a step; each has another size."""
    case = Case(size="base", rows=2, length=16 + 2 * step, lengths="ragged", attention_dropout=False)
    batch = make_batch(case, seed=2 * step + rank)
    return replace(batch, ids_T=batch.ids_T % VOCABULARY, masked_labels_M=batch.masked_labels_M % VOCABULARY)


def losses(
    rank: int, backend: str | None, preset: str = "bert-tiny", *, world: int = 2, recompute: bool = False, **parts: Any
) -> list[float]:
    """Losses of two steps of two slots: this rank's of two ranks, or those of one that has both slots."""
    module = module_of(preset, VOCABULARY, layers=1, width=256, feed_forward=512, attention_dropout=0.0, **parts)
    assert sum(weight.nbytes for weight in module.parameters()) > 2 * FIRST_BUCKET_BYTES
    for encoder in encoders_in(module.train()):
        encoder.recompute = recompute
    optimizer, found = build_optimizer(AdamW(), module), []
    objective = distributed(module, CPU, world)
    compute = StepContext(device=CPU, autocast=torch.autocast("cpu", enabled=False), seed=0, world=world)
    with compiled(module, world, backend) if backend else nullcontext():
        for step in range(2):
            slots = [(slot, batch_of(slot, step)) for slot in range(2)]
            counted = [module.counts(batch) for _, batch in slots]
            counts = divisors({term: sum(each[term] for each in counted) for term in module.terms}, module.weights)
            mine = slots if world == 1 else [slots[rank]]
            sums, norm = train_step(objective, optimizer, mine, counts, compute, step=step, rate=1e-3, clip_norm=1.0)
            found += [*(float(sums[term]) for term in sorted(sums)), float(norm)]
    return found


PAIRS: dict[str, Callable[[int], list[float]]] = {
    "bert": partial(losses, backend=None),
    "bert compiled": partial(losses, backend="aot_eager"),
    "bert without dropout": partial(losses, backend=None, hidden_dropout=0.0),
    "bert recomputed": partial(losses, backend="aot_eager", hidden_dropout=0.0, recompute=True),
    "electra": partial(losses, backend=None, preset="electra-tiny"),
    "electra compiled": partial(losses, backend="aot_eager", preset="electra-tiny"),
}
"""Name -> losses and gradient norms of a rank in two worlds."""


def rank_of_two(rank: int) -> dict[str, list[float]]:
    """Return a worker's losses by name."""
    with pytest.MonkeyPatch.context() as patch:
        in_buckets = partial(DistributedDataParallel, bucket_cap_mb=BUCKET_MEGABYTES)
        patch.setattr(training_step, "DistributedDataParallel", in_buckets)
        return {name: found(rank) for name, found in PAIRS.items()}


@pytest.fixture(scope="module")
def of_ranks(ranks: Callable[[int], Ranks]) -> list[dict[str, list[float]]]:
    """Losses of each of two workers, by name."""
    return ranks(2).run(rank_of_two)


@pytest.mark.second
@pytest.mark.timeout(400)  # two processes that import torch and its compiler
@pytest.mark.parametrize(
    ("eager", "compiled"),
    [("bert", "bert compiled"), ("bert without dropout", "bert recomputed"), ("electra", "electra compiled")],
)
def test_two_workers_train_compiled_code_as_they_train_eager_code(of_ranks: list, eager: str, compiled: str) -> None:
    for found in of_ranks:
        assert found[eager][:3] != found[eager][3:] and found[compiled] == pytest.approx(found[eager], rel=1e-6)


@pytest.mark.second
@pytest.mark.timeout(400)
@pytest.mark.parametrize("preset", ["bert-tiny", "electra-tiny"])
def test_two_workers_have_the_losses_and_gradients_of_one(of_ranks: list, preset: str) -> None:
    torch.set_num_threads(1)
    one = losses(0, None, preset, world=1)
    both = zip(*(found[preset.removesuffix("-tiny")] for found in of_ranks), strict=True)
    # Two terms and the norm in turn, which both ranks have after the reduction.
    two = [first if place % 3 == 2 else first + second for place, (first, second) in enumerate(both)]
    assert two == pytest.approx(one, rel=2e-6)
