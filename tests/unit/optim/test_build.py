import math
import typing

import pytest
import torch
from torch import nn

from pipeline.config.adapters import LowRank
from pipeline.config.finetune import Finetune
from pipeline.config.jobs import Pretrain
from pipeline.config.training import AdamW, Lamb, StableAdamW
from pipeline.errors import CheckpointError
from pipeline.model.adapters import add_adapter
from pipeline.optim.build import OPTIMIZERS, build_optimizer, load_optimizer, optimizer_tensors
from pipeline.train.step import update


def step(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    module(torch.ones(1, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def test_one_step_by_hand() -> None:
    # A single weight w = 1 with gradient 4: m = 0.4, v = 0.016, both bias-corrected to 4 and 16, so the step is
    # rate * (4 / (sqrt(16) + eps) + decay * w).
    weight = nn.Linear(1, 1, bias=False)
    weight.weight.data.fill_(1.0)
    optimizer = build_optimizer(AdamW(learning_rate=0.1, weight_decay=0.5, epsilon=1e-6), weight)
    (weight(torch.ones(1, 1)) * 4).sum().backward()
    optimizer.step()
    assert weight.weight.item() == pytest.approx(1.0 - 0.1 * 0.5 * 1.0 - 0.1 * 4 / (math.sqrt(16) + 1e-6), rel=1e-6)


def test_biases_and_layer_norms_do_not_decay() -> None:
    model = module()
    decayed, free = (group["params"] for group in build_optimizer(AdamW(), model).param_groups)
    assert [p.shape for p in decayed] == [(4, 3), (2, 4)]
    assert [p.shape for p in free] == [(4,), (4,), (4,), (2,)]


@pytest.mark.parametrize("share", [None, 0.1])
def test_word_embeddings_have_a_share_of_the_rate(share: float | None, training, tiny_config: Pretrain) -> None:
    model = training.module(tiny_config)
    chosen = AdamW(learning_rate=0.01, layer_decay=0.5, word_embeddings_rate=share)
    shares = {
        parameter: group["rate_share"]
        for group in build_optimizer(chosen, model).param_groups
        for parameter in group["params"]
    }
    table = model.encoder.embeddings
    lowest = 0.5 ** (tiny_config.model.layers + 1)
    assert shares[table.positions.weight] == lowest and shares[table.words.weight] == lowest * (share or 1)


def test_a_restored_optimiser_goes_on_as_if_never_stopped() -> None:
    ours, theirs = module(), module()
    one, other = build_optimizer(AdamW(learning_rate=0.01), ours), build_optimizer(AdamW(learning_rate=0.01), theirs)
    for _ in range(3):
        step(ours, one)
    theirs.load_state_dict(ours.state_dict())
    load_optimizer(other, theirs, optimizer_tensors(one, ours))
    step(ours, one)
    step(theirs, other)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_a_missing_or_misshapen_tensor_is_refused() -> None:
    model = module()
    optimizer = build_optimizer(AdamW(), model)
    step(model, optimizer)
    tensors = optimizer_tensors(optimizer, model)
    with pytest.raises(CheckpointError, match="2.bias.exp_avg is missing or has another shape"):
        load_optimizer(optimizer, model, tensors | {"2.bias.exp_avg": torch.zeros(3)})
    del tensors["0.weight.step"]
    with pytest.raises(CheckpointError, match="0.weight.step is missing"):
        load_optimizer(optimizer, model, tensors)


def test_every_kind_of_optimiser_has_its_function() -> None:
    assert set(OPTIMIZERS) == {
        *typing.get_args(typing.get_type_hints(Pretrain)["optimizer"]),
        typing.get_type_hints(Finetune)["optimizer"],
    }


@pytest.mark.parametrize("kind", [AdamW, Lamb, StableAdamW])
def test_rates_fall_from_the_heads_to_the_embeddings(training, tiny_config: Pretrain, kind: type[AdamW]) -> None:
    # Two layers: heads and pooler 1, layer 1 a half, layer 0 a quarter, the embeddings (and with them the tied output
    # words) an eighth.
    model = training.module(tiny_config)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = build_optimizer(kind(layer_decay=0.5), model).param_groups
    shares = {names[id(parameter)]: group["rate_share"] for group in groups for parameter in group["params"]}
    assert len(shares) == len(names)
    expected = {
        "encoder.embeddings": 0.125,
        "encoder.layers.0": 0.25,
        "encoder.layers.1": 0.5,
        "encoder.pooler": 1,
        "masked_token_head": 1,
        "next_sentence_head": 1,
    }
    for start, share in expected.items():
        assert {found for name, found in shares.items() if name.startswith(start)} == {share}, start


@pytest.mark.parametrize("family_config", ["deberta", "deberta-v2"], indirect=True)
def test_relative_embeddings_have_the_rate_of_embeddings(training, family_config: Pretrain) -> None:
    model = training.module(family_config)
    groups = build_optimizer(AdamW(layer_decay=0.5), model).param_groups
    shares = {id(parameter): group["rate_share"] for group in groups for parameter in group["params"]}
    encoder = model.encoder
    assert {shares[id(parameter)] for parameter in encoder.relative.parameters()} == {0.5 ** (len(encoder.layers) + 1)}


@pytest.mark.parametrize("kind", [AdamW, Lamb, StableAdamW])
def test_frozen_parameters_are_in_no_group_and_keep_the_rates_of_the_others(
    training, tiny_config: Pretrain, kind: type[AdamW]
) -> None:
    model = training.module(tiny_config)
    add_adapter(model, LowRank())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = build_optimizer(kind(layer_decay=0.5), model).param_groups
    shares = {names[id(parameter)]: group["rate_share"] for group in groups for parameter in group["params"]}
    assert {name: share for name, share in shares.items() if ".layers." in name} == {
        f"encoder.layers.{layer}.attention.qkv.changes.{part}.{side}": share
        for layer, share in ((0, 0.25), (1, 0.5))
        for part in ("query", "value")
        for side in ("down", "up")
    }
    assert {share for name, share in shares.items() if ".layers." not in name} == {1}
    assert {group["matrices"] for group in groups} == {1}


def test_rates_count_layers_from_the_top_though_it_is_frozen(training, tiny_config: Pretrain) -> None:
    model = training.module(tiny_config)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    model.encoder.layers[1].requires_grad_(False)
    groups = build_optimizer(AdamW(layer_decay=0.5), model).param_groups
    assert {
        group["rate_share"] for group in groups for parameter in group["params"] if "layers.0." in names[id(parameter)]
    } == {0.25}


@pytest.mark.parametrize("kind", [AdamW, Lamb, StableAdamW])
def test_parameters_without_a_gradient_stay_and_a_frozen_one_needs_no_state(kind: type[AdamW]) -> None:
    part, again = module(), module()
    for one in (part, again):
        one[0].requires_grad_(False)
    optimizer, other = build_optimizer(kind(), part), build_optimizer(kind(), again)
    before = {name: tensor.clone() for name, tensor in part.state_dict().items()}
    part[2](torch.ones(1, 4)).square().sum().backward()  # the LayerNorm trains, and this loss does not reach it
    norm = update(optimizer, part, rate=0.1, clip_norm=1.0)
    assert norm > 0
    assert {name for name, tensor in part.state_dict().items() if not torch.equal(tensor, before[name])} == {
        "2.weight",
        "2.bias",
    }
    step(part, optimizer)
    load_optimizer(other, again, optimizer_tensors(optimizer, part))
    assert optimizer_tensors(other, again).keys() == {
        f"{name}.{key}"
        for name in ("1.weight", "1.bias", "2.weight", "2.bias")
        for key in ("exp_avg", "exp_avg_sq", "step")
    }


def test_a_group_takes_its_share_of_the_rate(training, tiny_config: Pretrain) -> None:
    # The first step of Adam without weight decay moves every weight that has a gradient by the rate.
    model = training.module(tiny_config)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = build_optimizer(AdamW(layer_decay=0.5, weight_decay=0.0, epsilon=1e-12), model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    update(optimizer, model, rate=0.01, clip_norm=1.0)
    moved = {name: (before[name] - parameter).max().item() for name, parameter in model.named_parameters()}
    assert moved["encoder.embeddings.segments.weight"] == pytest.approx(0.00125, rel=1e-3)
    assert moved["encoder.layers.0.attention.qkv.weight"] == pytest.approx(0.0025, rel=1e-3)
    assert moved["encoder.pooler.weight"] == pytest.approx(0.01, rel=1e-3)


def test_query_key_and_value_are_three_matrices(training, tiny_config: Pretrain) -> None:
    model = training.module(tiny_config)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = build_optimizer(Lamb(), model).param_groups
    fused = {names[id(parameter)] for group in groups for parameter in group["params"] if group["matrices"] == 3}
    assert fused == {f"encoder.layers.{layer}.attention.qkv.weight" for layer in range(2)}
    assert {group["matrices"] for group in groups} == {1, 3}


@pytest.mark.parametrize("clip_norm", [0.1, 1e6])
def test_an_update_is_that_of_clipped_gradients(clip_norm: float) -> None:
    ours, plain = module(), module()
    optimizers = [build_optimizer(AdamW(), part) for part in (ours, plain)]
    for _ in range(3):
        for part in (ours, plain):
            part(torch.ones(1, 3)).square().sum().backward()
        norm = update(optimizers[0], ours, rate=0.1, clip_norm=clip_norm)
        wanted = nn.utils.clip_grad_norm_(plain.parameters(), clip_norm)
        for group in optimizers[1].param_groups:
            group["lr"] = 0.1
        optimizers[1].step()
        optimizers[1].zero_grad()
        torch.testing.assert_close(norm, wanted)
        torch.testing.assert_close(ours.state_dict(), plain.state_dict())
    assert all(parameter.grad is None for parameter in ours.parameters())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_update_without_a_finite_gradient_changes_nothing(bad: float) -> None:
    part = module()
    optimizer = build_optimizer(AdamW(), part)
    part(torch.ones(1, 3)).square().sum().backward()
    update(optimizer, part, rate=0.1, clip_norm=1.0)
    weights = {name: tensor.clone() for name, tensor in part.state_dict().items()}
    state = optimizer_tensors(optimizer, part)
    part(torch.ones(1, 3)).square().sum().backward()
    part[0].bias.grad[1] = bad
    assert not update(optimizer, part, rate=0.1, clip_norm=1.0).isfinite()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in part.state_dict().items())
    assert all(torch.equal(tensor, state[name]) for name, tensor in optimizer_tensors(optimizer, part).items())
