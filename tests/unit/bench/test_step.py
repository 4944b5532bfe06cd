from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from pipeline.bench import step
from pipeline.bench.cases import ARTICLES, BATCHES, Case, counted, make_batch
from pipeline.bench.peer import masked_only_loss, padded, peer_model, shipped_loss
from pipeline.bench.step import best, line, measure, our_steps, verdict
from pipeline.config.model import FamilyName
from pipeline.config.model_parts import BlockSparseAttention
from pipeline.model.encoder import encoders_in
from pipeline.model.flops import TokenCounts
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.train import compiling
from tests.conftest import tiers

CPU = torch.device("cpu")
PLAIN = torch.autocast("cpu", enabled=False)
CASE = Case(size="tiny", rows=6, length=16, lengths="ragged", attention_dropout=True)


def test_batches_are_full_or_of_real_lengths() -> None:
    full = make_batch(replace(CASE, lengths="full"), 0)
    assert full.offsets.diff().tolist() == [16] * 6 and full.masked == 6 * 2  # 0.15 of 16, rounded
    many = make_batch(replace(CASE, rows=4_000, length=128), 0)
    # Between the deciles 9, 73, 114 and 128 lengths lie evenly: the mean is (9 + 73) / 20 + (73 + 114) / 20 + (114 +
    # 128) / 20 + 0.7 * 128.
    assert many.offsets.diff().double().mean().item() == pytest.approx(4.1 + 9.35 + 12.1 + 89.6, rel=0.01)
    assert many.masked_positions_M.unique().numel() == many.masked and many.maximum_length == 128
    assert torch.equal(many.ids_T, make_batch(replace(CASE, rows=4_000, length=128), 0).ids_T)


def test_what_the_formula_of_operations_is_asked() -> None:
    batch = make_batch(replace(CASE, lengths="full"), 0)
    assert counted(batch) == TokenCounts(tokens=96, squares=6 * 16 * 16, masked=12)


def test_padding_by_hand() -> None:
    batch = make_batch(CASE, 1)
    inputs = padded(batch, CASE.model)
    lengths = batch.offsets.diff().tolist()
    assert inputs["attention_mask"].sum(1).tolist() == lengths and min(lengths) < max(lengths)
    assert torch.equal(inputs["input_ids"][inputs["attention_mask"].bool()], batch.ids_T)
    labels = inputs["labels"].flatten()
    assert torch.equal(labels[labels >= 0], batch.masked_labels_M) and torch.equal(
        labels[inputs["masked_places"]], batch.masked_labels_M
    )
    assert "attention_mask" not in padded(make_batch(replace(CASE, lengths="full"), 1), CASE.model)


def test_batches_of_articles_are_sorted() -> None:
    case = replace(CASE, lengths="articles", length=4_096, rows=500)
    lengths = np.concatenate([batch.offsets.diff().numpy() for batch in case.batches])
    assert len(lengths) == BATCHES * 500 and (np.diff(lengths) >= 0).all() and lengths[-1] == 4_096
    assert np.median(lengths) == pytest.approx(ARTICLES[5], rel=0.05)


def test_a_family_without_a_preset_of_the_size_has_the_shape_of_bert() -> None:
    model = replace(CASE, family="bigbird", size="mini").model
    assert (model.layers, model.width, model.heads, model.feed_forward) == (4, 256, 4, 1024)
    assert isinstance(model.attention, BlockSparseAttention) and model.maximum_positions == 4_096
    assert replace(CASE, family="deberta-v2", size="small").preset.model.width == 768, "deberta-v3-small"


@pytest.mark.parametrize("family", get_args(FamilyName))
def test_both_columns_of_theirs_have_one_loss(family: FamilyName) -> None:
    sizes = {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32, "maximum_positions": 320}
    case = replace(CASE, family=family, vocabulary_size=1_000)
    settings = replace(case.preset.model, hidden_dropout=0.0, attention_dropout=0.0, **sizes)
    ours = build_objective(case.preset.objective, case.preset.sampling, settings, 1_000)
    model = peer_model(ours, 1_000)
    inputs = padded(make_batch(case, 1), settings)
    losses = []
    for loss in (shipped_loss, masked_only_loss):
        torch.manual_seed(0)
        losses.append(loss(model, inputs))
    torch.testing.assert_close(*losses)
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in ours.parameters()), (
        "nothing else learns"
    )


@tiers("family", first=("bert",), second=get_args(FamilyName))
def test_every_column_and_mode_is_measured_and_lines_up(family: FamilyName) -> None:
    seconds = measure(replace(CASE, family=family, vocabulary_size=1_000), PLAIN, CPU, ["eager"], repetitions=1)
    assert (
        seconds.keys() == {("ours", "eager"), ("as shipped", "eager"), ("masked only", "eager")}
        and min(seconds.values()) > 0
    )
    seconds = {
        ("ours", "eager"): 0.2,
        ("ours", "compiled"): 0.1,
        ("as shipped", "eager"): 0.3,
        ("as shipped", "compiled"): 0.4,
    }
    assert best(seconds, "ours") == (0.1, "compiled") and best(seconds, "masked only") is None
    tokens = np.mean([make_batch(CASE, seed).tokens for seed in range(BATCHES)])
    assert line(CASE, seconds, CPU, "float32").split() == [
        "tiny,",
        "ragged",
        "16",
        "6",
        f"{tokens / 0.1:,.0f}",
        "compiled",
        f"{tokens / 0.3:,.0f}",
        "eager",
        "-",
        "3.00",
        "-",
    ]
    articles = replace(CASE, lengths="articles")
    tokens = sum(batch.tokens for batch in articles.batches)
    assert line(articles, {("ours", "eager"): 2.0}, CPU, "float32").split()[4] == f"{tokens / 2:,.0f}"


@pytest.mark.second
def test_layers_are_compiled_and_the_rest_and_transformers_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, encoders = CompileCounter(), []

    def compile_layers(module: Pretraining) -> None:
        encoders.extend(encoders_in(module))
        compiling.compile_layers(module, counter)

    monkeypatch.setattr(step, "compile_layers", compile_layers)
    case = replace(CASE, vocabulary_size=1_000)
    seconds = measure(case, PLAIN, CPU, ["layers"], repetitions=1)
    assert seconds.keys() == {("ours", "layers")} and counter.frame_count == 1
    (encoder,) = encoders
    assert encoder.compiles_layers and len(encoder.layers) == case.model.layers


@pytest.mark.parametrize("narrow", [False, True])
def test_a_step_trains_with_sums_of_either_format(monkeypatch: pytest.MonkeyPatch, narrow: bool) -> None:
    modules: list[Pretraining] = []
    monkeypatch.setattr(step, "build_optimizer", lambda settings, module: modules.append(module))
    case = replace(CASE, vocabulary_size=1_000)
    our_steps(case, torch.autocast("cpu", dtype=torch.bfloat16), CPU, ["eager"], narrow_residual=narrow)
    assert [encoder.narrow_residual for encoder in encoders_in(modules[0])] == [narrow]


def test_a_ratio_below_its_floor_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(step, "FLOORS", {"tiny full": 3.0})
    assert verdict({"tiny full": 3.1, "tiny ragged": 1.0}, CPU) == 0
    assert (
        capsys.readouterr().out
        == "speed of ours / speed of transformers as shipped: tiny full 3.10 (aim 4); tiny ragged 1.00\n"
    )
    assert verdict({"tiny full": 2.9}, CPU) == 1
    assert capsys.readouterr().out.endswith("below its floor: tiny full: 2.90, floor 3\n")
    assert verdict({"tiny full": 2.9}, torch.device("cuda")) == 0
    assert verdict({}, CPU) == 0


@pytest.mark.parametrize("family", step.FLOAT32_PEERS)
def test_families_that_transformers_trains_in_float32_only(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        step.main(["mini", "--family", family])
    assert f"transformers' {family} does not train under autocast: add --precision float32" in capsys.readouterr().err
