"""Whole steps on a CUDA device that computes nothing, run by test_gpu_path.py.

The host waits for nothing, no tensor is elsewhere, and the kernels are those that should run.
"""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

from pipeline.batch import MaskedBatch, TaskBatch, TextsBatch
from pipeline.bench.cases import Case, make_batch
from pipeline.config.adapters import Bottleneck, LowRank
from pipeline.config.finetune import Finetune
from pipeline.config.model import FamilyName, Model
from pipeline.config.model_parts import BlockSparseAttention, GlobalLocalAttention, LocalAttention
from pipeline.config.ranking import Ranking
from pipeline.config.recipe import Recipe
from pipeline.config.similarity import KIND_OF_LOSS, Similarity
from pipeline.config.training import AdamW, Lamb, Muon, StableAdamW, TaskAdamW
from pipeline.evaluation.evaluate import evaluate
from pipeline.finetune.seen_words import SeenWords
from pipeline.finetune.trial import train_epoch, train_on_slots
from pipeline.finetune.trial_state import TrialState
from pipeline.model.adapters import add_adapter
from pipeline.model.encoder import encoders_in
from pipeline.objectives.logits import compute_logits
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.matching import MatchingTask
from pipeline.objectives.ranking import RankingTask
from pipeline.objectives.relations import RelationTask
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.objectives.tasks import OBJECTIVES, TASK_MODULES, TaskObjective
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer, set_rates
from pipeline.tasks.schema import ENCODED
from pipeline.train.checkpoint import snapshot
from pipeline.train.step import StepContext, train_step
from tests.conftest import parts_of_preset, tiny_preset
from tests.cuda.device import CUDA, move, on_device, pinned, waits
from tests.cuda.watch import HostWaits, Watch
from tests.unit.objectives.batches import as_task, tokens_of

MODEL = Model(layers=2, width=32, heads=2, feed_forward=64, maximum_positions=64, attention_dropout=0.0)
WORDS = 1_000
SIZES = ((6, 64), (9, 48), (4, 33))
KERNEL = ("_varlen_attn", "_varlen_attn_backward")
KERNEL_WITH_DROPOUT = ("_flash_attention_forward", "_flash_attention_backward")
"""Forward and backward of the variable-length kernel."""
OPTIMIZERS = {"adamw": AdamW(), "lamb": Lamb(), "stable": StableAdamW(), "muon": Muon()}


def batch_of(rows: int = 6, length: int = 64) -> MaskedBatch:
    """Return random ids of ragged lengths, on the CPU."""
    batch = make_batch(
        Case(size="tiny", rows=rows, length=length, lengths="ragged", attention_dropout=False), seed=rows
    )
    return replace(batch, ids_T=batch.ids_T % WORDS, masked_labels_M=batch.masked_labels_M % WORDS)


def bfloat16() -> torch.autocast:
    return torch.autocast("cuda", dtype=torch.bfloat16)


def elsewhere(module: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Return names of parameters, gradients, buffers and optimiser states that are not on the device."""
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, parameter in module.named_parameters():
        tensors |= {f"{name}.{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
        if parameter.grad is not None:
            tensors[f"{name}.grad"] = parameter.grad
    return [name for name, tensor in tensors.items() if tensor.device != CUDA]


def module_of(family: str, **parts: Any) -> Pretraining:
    """The objective of a family's presets on the small model."""
    preset = tiny_preset(family)
    model = replace(MODEL, **parts_of_preset(preset) | parts)
    return build_objective(preset.objective, preset.sampling, model, WORDS)


def pretraining_steps(module: Pretraining, optimizer: AdamW, batch: MaskedBatch, autocast: torch.autocast) -> Watch:
    """Run two steps on the device and return the operators of the second."""
    counts = divisors(module.counts(batch), module.weights)
    compute = StepContext(device=CUDA, autocast=autocast, seed=0)
    with on_device():
        move(module)
        chosen = build_optimizer(optimizer, module)
        for step in range(2):
            with Watch() as watch:
                sums, norm = train_step(
                    module, chosen, [(0, batch)], counts, compute, step=step, rate=1e-4, clip_norm=1.0
                )
        assert {tensor.device for tensor in (norm, *sums.values())} == {CUDA} and not elsewhere(module, chosen)
    return watch


@pytest.mark.parametrize(
    ("family", "optimizer"),
    [*((family, "adamw") for family in get_args(FamilyName)), *(("bert", name) for name in ("lamb", "stable", "muon"))],
)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_pretraining_without_a_wait(family: str, optimizer: str, dropout: float) -> None:
    module = module_of(family, hidden_dropout=dropout, attention_dropout=dropout)
    watch = pretraining_steps(module, OPTIMIZERS[optimizer], batch_of(), bfloat16())
    names = KERNEL_WITH_DROPOUT if dropout else KERNEL
    attention = {name: watch.counts[name] for name in names}
    without = family.startswith("deberta")
    assert attention == dict.fromkeys(names, 0 if without else MODEL.layers * len(encoders_in(module)))


@pytest.mark.parametrize(
    ("family", "products"),
    [
        *((family, True) for family in get_args(FamilyName)),
        *((family, False) for family in ("bert", "albert", "deberta")),
    ],
)
def test_recomputing_layers_without_a_wait(family: str, products: bool) -> None:
    module = module_of(family)
    for encoder in encoders_in(module):
        encoder.recompute, encoder.recompute_products = True, products
    watch = pretraining_steps(module, AdamW(), batch_of(), bfloat16())
    layers = 0 if family.startswith("deberta") else MODEL.layers * len(encoders_in(module))
    times = 2 if products else 1
    assert (watch.counts["_varlen_attn"], watch.counts["_varlen_attn_backward"]) == (times * layers, layers)


@pytest.mark.parametrize("products", [True, False])
def test_attention_with_dropout_is_computed_again(products: bool) -> None:
    """If it were not, the next dropout of the layer would draw other numbers than in the forward pass."""
    module = module_of("bert", hidden_dropout=0.1, attention_dropout=0.1)
    module.encoder.recompute, module.encoder.recompute_products = True, products
    watch = pretraining_steps(module, AdamW(), batch_of(), bfloat16())
    assert [watch.counts[name] for name in KERNEL_WITH_DROPOUT] == [2 * MODEL.layers, MODEL.layers]


def test_a_narrow_window_is_the_kernels_window() -> None:
    """The second of two layers has local attention: a token attends to 4 tokens on each side."""
    module = module_of("modernbert", attention=LocalAttention(window=8, global_every=2))
    watch = pretraining_steps(module, AdamW(), batch_of(), bfloat16())
    assert watch.windows == {(kernel, window): 1 for kernel in KERNEL for window in ((-1, -1), (4, 4))}


def test_float16_with_a_loss_scale_without_a_wait() -> None:
    autocast = torch.autocast("cuda", dtype=torch.float16)
    watch = pretraining_steps(MaskedTokens(MODEL, WORDS), AdamW(), batch_of(), autocast)
    assert watch.counts["_varlen_attn"] == MODEL.layers


def test_float32_takes_the_padded_path() -> None:
    watch = pretraining_steps(MaskedTokens(MODEL, WORDS), AdamW(), batch_of(), torch.autocast("cuda", enabled=False))
    assert watch.counts["_varlen_attn"] == 0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rates_are_tensors_that_stay(optimizer: str) -> None:
    """A recorded update reads them."""
    module, rates = module_of("bert"), []
    with on_device():
        move(module)
        chosen = build_optimizer(OPTIMIZERS[optimizer], module)
        for rate in (1e-4, 2e-4):
            set_rates(chosen, rate)
            rates.append([group["lr"] for group in chosen.param_groups])
    assert all(one is other and one.device == CUDA for one, other in zip(*rates, strict=True))


LABELS = 3


def labelled(kind: str) -> TaskBatch | TextsBatch:
    """Return a batch with labels of this kind of task."""
    batch = batch_of()
    if kind in ("contrastive", "triplet"):  # rows of a text, its match and a negative text
        places = torch.arange(batch.sequences)
        keys = 1 + torch.arange(batch.sequences // 3 * 4).view(-1, 4)
        return TextsBatch(**tokens_of(batch), places=places, keys=keys)
    if kind in ("choices", *RANKED):  # rows of two sequences, which are in the batch one after the other
        rows = batch.sequences // 2
        passages = torch.tensor([2] * (rows - 1) + [batch.sequences - 2 * (rows - 1)])
        outputs = torch.linspace(-1, 1, batch.sequences)
        return as_task(batch, (torch.arange(rows) % 2).float(), outputs, passages)
    wanted = {
        "classification": torch.arange(batch.sequences) % LABELS,
        "regression": torch.linspace(0, 5, batch.sequences),
        "multilabel": torch.arange(batch.sequences * LABELS) % 2,
        "ranking": torch.arange(batch.sequences) % 2,
        "similarity": torch.arange(batch.sequences // 2),
        "softmax": torch.arange(batch.sequences // 2) % LABELS,
        "tags": torch.arange(batch.tokens) % (LABELS + 1),
        "spans": torch.arange(2 * batch.sequences) % 3,
    }[kind].float()
    if kind == "tags":
        wanted[wanted == LABELS] = -100
    return as_task(batch, wanted)


RANKED = {"ranking softmax": Ranking(loss="softmax"), "ranking margin": Ranking(loss="margin")}
TASKS = [(kind, "cls", False) for kind in OBJECTIVES]
TASKS += [(kind, "cls", True) for kind in ("classification", "tags")]
TASKS += [("classification", pooling, False) for pooling in ("mean", "attention")]
TASKS += [(loss, "mean", False) for loss in ("contrastive", "triplet", "softmax")]
TASKS += [(loss, "cls", False) for loss in RANKED]
"""Kind of task, similarity.loss or a loss of RANKED, pooling, and whether classes have weights."""


def task_module(kind: str, pooling: str = "cls", *, weighted: bool = False, model: Model = MODEL) -> TaskObjective:
    weights = torch.arange(1.0, 1 + LABELS) if weighted else None
    outputs = 1 if kind == "regression" else LABELS
    if kind in RANKED:
        ranker = RankingTask(model, WORDS, torch.Generator().manual_seed(0), pooling=pooling)
        ranker.learn(RANKED[kind])
        return ranker
    build = TASK_MODULES[KIND_OF_LOSS.get(kind, kind)].build
    module = build(model, WORDS, outputs, torch.Generator().manual_seed(0), pooling, weights)
    if isinstance(module, MatchingTask | RelationTask):
        module.learn(Similarity(loss=kind, dimensions=(8, 32), margin=0.5 if kind == "triplet" else Similarity.margin))
    return module


def finetune(optimizer: AdamW) -> Finetune:
    config = Finetune(checkpoint="a", task=("cola",), recipe=Recipe(epochs=1, rows_per_step=4))
    return replace(config, optimizer=optimizer)


def finetuning_step(module: TaskObjective, kind: str, optimizer: AdamW) -> Watch:
    """Run a step on the device."""
    with on_device():
        module.to(CUDA).train()
        chosen = build_optimizer(optimizer, module)
        with Watch() as watch:
            compute = StepContext(device=CUDA, autocast=bfloat16(), seed=0)
            loss, weight = train_on_slots(
                [(0, labelled(kind))], module, chosen, compute, step=0, rate=1e-4, clip_norm=1.0
            )
        assert loss.device == CUDA and (isinstance(weight, int) or weight.device == CUDA)
        assert not elsewhere(module, chosen)
    return watch


@pytest.mark.parametrize(("kind", "pooling", "weighted"), TASKS)
def test_finetuning_without_a_wait(kind: str, pooling: str, weighted: bool) -> None:
    watch = finetuning_step(
        task_module(kind, pooling, weighted=weighted), kind, TaskAdamW(learning_rate=1e-4, layer_decay=0.8)
    )
    assert (watch.counts["_varlen_attn"], watch.counts["_varlen_attn_backward"]) == (MODEL.layers, MODEL.layers)


def test_finetuning_a_crf_without_a_wait() -> None:
    module, every = task_module("tags"), np.ones((LABELS, LABELS), bool)
    module.add_chain(every[0], every, every[0])
    finetuning_step(module, "tags", TaskAdamW(learning_rate=1e-4, layer_decay=0.8))


@pytest.mark.parametrize(("window", "kernels"), [(4, 0), (256, MODEL.layers)])
def test_finetuning_with_a_global_token_without_a_wait(window: int, kernels: int) -> None:
    """Blocks of a narrow window have no kernel; a wide window takes the kernel of full attention."""
    parts = parts_of_preset(tiny_preset("longformer")) | {"attention": GlobalLocalAttention(window=window)}
    module = task_module("classification", model=replace(MODEL, **parts))
    watch = finetuning_step(module, "classification", TaskAdamW(learning_rate=1e-4))
    assert (watch.counts["_varlen_attn"], watch.counts["_varlen_attn_backward"]) == (kernels, kernels)


def test_long_sequences_with_block_sparse_attention() -> None:
    """All tensors of the blocks are on the device."""
    attention, preset, batch = BlockSparseAttention(block_size=4, random_blocks=1), tiny_preset("bigbird"), batch_of()
    model = replace(MODEL, **parts_of_preset(preset) | {"attention": attention})
    module = build_objective(preset.objective, preset.sampling, model, WORDS)
    assert batch.maximum_length > attention.longest_full
    counts = divisors(module.counts(batch), module.weights)
    with on_device():
        move(module)
        optimizer = build_optimizer(AdamW(), module)
        compute = StepContext(device=CUDA, autocast=bfloat16(), seed=0)
        _, norm = train_step(module, optimizer, [(0, batch)], counts, compute, step=0, rate=1e-4, clip_norm=1.0)
    assert norm.device == CUDA and not elsewhere(module, optimizer)


def test_finetuning_with_dropout_takes_the_kernel() -> None:
    module = task_module("classification", model=replace(MODEL, attention_dropout=0.1))
    watch = finetuning_step(module, "classification", Lamb(learning_rate=1e-4))
    assert [watch.counts[name] for name in KERNEL_WITH_DROPOUT] == [MODEL.layers, MODEL.layers]


def test_finetuning_the_seen_words_alone() -> None:
    module = task_module("classification")
    seen = SeenWords(module.encoder.embeddings.words, batch_of().ids_T)
    with on_device():
        seen.places = seen.places.to(CUDA)  # made on the CPU, since here the device cannot count them
    module.encoder.embeddings.words = seen
    finetuning_step(module, "classification", TaskAdamW(learning_rate=1e-4, layer_decay=0.8))


@pytest.mark.parametrize("adapter", [LowRank(everywhere=True, dropout=0.1), Bottleneck(width=4)], ids=str)
def test_adapters_without_a_wait(adapter: LowRank | Bottleneck) -> None:
    module = task_module("classification")
    add_adapter(module, adapter)
    finetuning_step(module, "classification", Lamb(learning_rate=1e-4))


def test_finetuning_and_evaluation_wait_once_at_their_end() -> None:
    """The first wait comes after the last step and the last batch."""
    row = {"ids": [1, 2, 3, 4], "first_length": 4, "labels": None}
    listed = [row | {"label": float(number % LABELS), "row": number} for number in range(12)]
    rows = pa.Table.from_pylist(listed, schema=ENCODED)
    module = task_module("classification")
    config = finetune(TaskAdamW(learning_rate=1e-4, layer_decay=0.8))
    with on_device():
        optimizer = build_optimizer(config.optimizer, module.to(CUDA))
        with Watch() as watch, pytest.raises(HostWaits):
            train_epoch(
                config,
                module,
                optimizer,
                rows,
                TrialState(),
                0,
                StepContext(device=CUDA, autocast=bfloat16(), seed=0),
                checkpoints=None,
            )
        assert watch.counts["_varlen_attn"] == 3 * MODEL.layers
        before = len(waits)
        with Watch() as watch, pytest.raises(RuntimeError, match="numpy"):
            compute_logits(module, rows, CUDA, bfloat16())
        assert watch.counts["_varlen_attn"] == MODEL.layers and len(waits) == before + 1


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_evaluation_waits_once_at_its_end(family: str) -> None:
    module, batches = module_of(family), [batch_of(*size) for size in SIZES]
    with on_device():
        move(module)
        with Watch() as watch, pytest.raises(HostWaits):
            evaluate(module, batches, world=1, device=CUDA, autocast=bfloat16())
        encoders = 2 if family == "electra" else 1
        assert watch.counts["_varlen_attn"] == encoders * len(SIZES) * MODEL.layers


def test_a_checkpoint_waits_once_for_each_kind_of_state() -> None:
    module = module_of("bert")
    with on_device():
        move(module)
        chosen = build_optimizer(AdamW(), module)
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        chosen.step()
        before = len(waits)
        with Watch() as watch:
            taken = snapshot(module, chosen)
        tensors = [*taken.optimizer.values(), *(value for _, weights in taken.models for value in weights.values())]
        assert all(not tensor.is_cuda for tensor in tensors) and watch.counts["_to_copy"] == len(tensors)
        assert len(waits) - before <= 3, "weights, weights that are published as part of a sum, optimiser"


def test_a_batch_is_copied_at_once() -> None:
    batch = batch_of()
    with on_device():
        before = len(pinned)
        with Watch() as watch:
            moved = batch.to(CUDA)
        assert len(pinned) == before + 1 and watch.counts["_to_copy"] == 1
        for name, value in vars(batch).items():
            if isinstance(value, torch.Tensor):
                there = getattr(moved, name)
                assert there.device == CUDA and (there.dtype, there.shape) == (value.dtype, value.shape)


def test_the_watch_detects_waits() -> None:
    with on_device():
        numbers, one, mask = (torch.ones(size, device=CUDA) for size in ((4,), (), (4,)))
        waits = {
            "a copy from the device": lambda: numbers.cpu(),
            "a copy from pageable memory": lambda: torch.ones(4).to(CUDA, non_blocking=True),
            "a copy that is waited for": lambda: torch.ones(4).pin_memory().to(CUDA),
            "a mask as index": lambda: numbers[mask > 0],
            "a mask as target": lambda: numbers.index_put((mask > 0,), one),
            "places of what is not zero": lambda: numbers.nonzero(),
            "a number of a tensor": lambda: one.item(),
            "torch's own reading of one": lambda: torch._foreach_add_([numbers], one),
            "repetitions of unknown size": lambda: numbers.repeat_interleave(mask.long()),
            "lengths that are checked": lambda: torch.segment_reduce(numbers, "sum", lengths=mask.long()),
        }
        for what, call in waits.items():
            with Watch(), pytest.raises(HostWaits):
                call()
                pytest.fail(what)
        with Watch() as watch:
            torch._foreach_add_([numbers], one, alpha=1)
            numbers[torch.zeros(2, dtype=torch.int64, device=CUDA)].sum()
            torch.ones(4).pin_memory().to(CUDA, non_blocking=True)
        assert watch.counts["index"] == 1
        with pytest.raises(RuntimeError, match="devices"):
            numbers + torch.ones(4)
