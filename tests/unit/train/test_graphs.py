"""Slots that are filled for CUDA graphs, and the graphs themselves where there is a GPU."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.batch import Batch
from pipeline.bench.cases import Case
from pipeline.config.jobs import Pretrain
from pipeline.config.model_parts import LocalAttention
from pipeline.config.placement import Placement
from pipeline.config.training import AdamW, Lamb, Muon, StableAdamW
from pipeline.errors import ConfigError
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.optim.loss_scale import FIRST, LossScale
from pipeline.presets.table import PRESETS
from pipeline.train.flat_gradients import FlatGradients
from pipeline.train.graphs import SHARES, Capacity, SlotGraphs
from pipeline.train.step import Slot, StepContext, backward, prepare, train_step, update

CAPACITY = Capacity(rows=8, row_length=64, masked_share=0.15)
PRESETS_OF_FAMILIES = ("bert-tiny", "roberta-tiny", "albert-mini", "modernbert-tiny")


def batches(lengths: str = "ragged", rows: int = CAPACITY.rows) -> list[Batch]:
    return Case(size="tiny", rows=rows, length=64, lengths=lengths, attention_dropout=False).batches


def module_of(preset: str, **parts: Any) -> MaskedTokens:
    model = replace(PRESETS[preset].model, hidden_dropout=0.0, attention_dropout=0.0, layers=2, **parts)
    if isinstance(model.attention, LocalAttention):  # so that rows are longer than the window
        model = replace(model, attention=LocalAttention(window=16, global_every=2))
    return MaskedTokens(model, 30_522, torch.Generator().manual_seed(0), pairs=preset.startswith("bert"))


def losses_and_gradients(module: MaskedTokens, batch: Batch) -> dict[str, Tensor]:
    module.zero_grad()
    terms = {name: total for name, (total, _) in module(batch).items()}
    torch.stack([*terms.values()]).sum().backward()
    return terms | {name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize(
    ("preset", "lengths"), [*((preset, "ragged") for preset in PRESETS_OF_FAMILIES), ("bert-tiny", "full")]
)
def test_a_filled_slot_has_the_losses_and_gradients_of_its_rows(preset: str, lengths: str) -> None:
    module, batch = module_of(preset), batches(lengths)[0]
    filled = CAPACITY.fill(batch)
    assert filled.tokens > batch.tokens and filled.sequences > batch.sequences and filled.masked > batch.masked
    assert filled.offsets.diff().min() > 0 and filled.offsets.diff().max() <= 64 == filled.maximum_length
    torch.testing.assert_close(
        losses_and_gradients(module, filled), losses_and_gradients(module, batch), rtol=1e-4, atol=1e-4
    )


def test_a_slot_without_masked_tokens_adds_no_gradient() -> None:
    batch = batches()[0]
    batch = replace(batch, masked_positions_M=batch.masked_positions_M[:0], masked_labels_M=batch.masked_labels_M[:0])
    module, autocast = module_of("roberta-tiny"), torch.autocast("cpu", enabled=False)
    graphs = SlotGraphs(module, autocast, torch.device("cpu"), CAPACITY, records=False)
    compute = StepContext(device=torch.device("cpu"), autocast=autocast, seed=0, graphs=graphs)
    sums = backward(module, [(0, batch)], divisors(module.counts(batch), module.weights), compute, step=0)
    assert sums == {"mlm": 0.0} and not any(parameter.grad.any() for parameter in module.parameters())


def test_slots_have_few_sizes() -> None:
    """Rows of every mean length, and full ones."""
    sizes = set()
    for length, lengths in [*((length, "ragged") for length in range(5, 65)), (64, "full")]:
        case = Case(size="tiny", rows=CAPACITY.rows, length=length, lengths=lengths, attention_dropout=False)
        filled = [CAPACITY.fill(batch) for batch in case.batches]
        sizes |= {(batch.tokens, batch.masked, batch.sequences, batch.maximum_length) for batch in filled}
    assert len(sizes) == len(SHARES)


def test_slots_that_are_more_than_half_full_get_few_dummies() -> None:
    sizes = Capacity(rows=256, row_length=128, masked_share=0.3).sizes
    gaps = [(size - before) / sizes[-1] for before, size in zip([0, *sizes], sizes, strict=False)]
    assert len(sizes) == 16 and sizes[-1] == 256 * 128
    assert max(gaps[:4]) == 1 / 8 and max(gaps[4:]) <= 1 / 24 + 1 / 128


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"objective": PRESETS["electra-tiny"].objective}, "placement.graphs (on) needs objective masked, but"),
        (
            {"model": PRESETS["bigbird-base"].model},
            "needs full or local attention, but model.attention is block-sparse",
        ),
    ],
)
def test_what_cannot_be_recorded_is_refused(words: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Pretrain(placement=Placement(graphs="on"), **words)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"precision": "float16"},
            "placement.graphs (on) needs another number format, but placement.precision is float16",
        ),
        (
            {"recompute": True},
            "placement.graphs (on) needs layers that are not recomputed, but placement.recompute is set",
        ),
    ],
)
def test_settings_that_exclude_graphs(other: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Pretrain(placement=Placement(graphs="on", **other))


def steps_on_gpu(
    preset: str, slots: list[Slot], *, graphs: bool, single: bool = False
) -> tuple[list[Tensor], list[Tensor], int]:
    """Return the losses of three steps, the weights after them, and the number of graphs."""
    device, per_step = torch.device("cuda"), 1 if single else 2
    module, autocast = module_of(preset).to(device), torch.autocast("cuda", dtype=torch.bfloat16)
    recorded = SlotGraphs(module, autocast, device, CAPACITY, single=single) if graphs else None
    compute = StepContext(device=device, autocast=autocast, seed=0, graphs=recorded)
    optimizer, losses = build_optimizer(AdamW(), module), []
    if recorded is not None and single:
        prepare(recorded, optimizer, module, [batch for _, batch in slots], clip_norm=1.0)
    for step in range(3):
        counts: dict[str, int] = {}
        own = slots[step : step + per_step]
        for _, batch in own:
            for name, count in module.counts(batch).items():
                counts[name] = counts.get(name, 0) + count
        sums, norm = train_step(
            module, optimizer, own, divisors(counts, module.weights), compute, step=step, rate=1e-3, clip_norm=1.0
        )
        losses += [*sums.values(), norm]
    return losses, [parameter.detach() for parameter in module.parameters()], len(recorded.graphs) if recorded else 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("preset", PRESETS_OF_FAMILIES)
def test_graphs_train_as_eager_code(preset: str, single: bool) -> None:
    """Steps of two slots, some of which are recorded in the first step, others later; and prepared steps of one."""
    slots = list(enumerate([*batches("ragged"), *batches("full")[:1]]))
    (losses, weights, recorded), (wanted, weights_wanted, _) = (
        steps_on_gpu(preset, slots, graphs=graphs, single=single) for graphs in (True, False)
    )
    assert 1 < recorded <= len(SHARES)
    torch.testing.assert_close(losses, wanted, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(weights, weights_wanted, rtol=0.1, atol=3e-3)


def updated_on_gpu(chosen: AdamW, *, graphs: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Return the norms of eight updates, of which the sixth is not finite, and the weights after them."""
    device = torch.device("cuda")
    module, scale, norms = module_of("bert-tiny").to(device), LossScale(device), []
    optimizer, random = build_optimizer(chosen, module), torch.Generator(device).manual_seed(0)
    recorded = SlotGraphs(module, torch.autocast("cuda"), device, CAPACITY)
    recorded.gradients = FlatGradients(list(module.parameters()))
    for step in range(8):
        recorded.gradients.attach()
        recorded.gradients.flat.normal_(generator=random).mul_(scale.value)
        if step == 5:
            recorded.gradients.pairs[3][1].view(-1)[0] = torch.inf
        rate, chosen_graphs = 1e-3 / (1 + step), recorded if graphs else None
        norms.append(update(optimizer, module, rate=rate, clip_norm=1.0, scale=scale, graphs=chosen_graphs))
    assert scale.value == FIRST / 2 and bool(recorded.updates) == graphs
    return norms, [parameter.detach() for parameter in module.parameters()]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("chosen", [AdamW(), Lamb(), StableAdamW(), Muon()])
def test_a_replayed_update_is_an_eager_one(chosen: AdamW) -> None:
    (norms, weights), (wanted, wanted_weights) = (updated_on_gpu(chosen, graphs=graphs) for graphs in (True, False))
    torch.testing.assert_close(norms, wanted, equal_nan=True)
    torch.testing.assert_close(weights, wanted_weights)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dropped", ["hidden_dropout", "attention_dropout"])
def test_a_replayed_graph_draws_dropout_by_seed_step_and_slot(dropped: str) -> None:
    device, autocast = torch.device("cuda"), torch.autocast("cuda", dtype=torch.bfloat16)
    none = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    model = replace(PRESETS["bert-tiny"].model, **none | {dropped: 0.1})
    module = MaskedTokens(model, 30_522, torch.Generator().manual_seed(0)).to(device)
    graphs = SlotGraphs(module, autocast, device, CAPACITY)
    batch = batches()[0]
    counts = divisors(module.counts(batch), module.weights)

    def loss(step: int, slot: int) -> float:
        compute = StepContext(device=device, autocast=autocast, seed=0, graphs=graphs)
        return float(backward(module, [(slot, batch)], counts, compute, step=step)["mlm"])

    first = loss(0, 0)
    assert len({first, loss(0, 1), loss(1, 0)}) == 3 and loss(0, 0) == first
