"""Parts that settings choose: what each adds to an encoder, which families have which, and a model type of our own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.model_parts import (
    BlockSparseAttention,
    FullAttention,
    LearnedPositions,
    LocalAttention,
    NoPositions,
    RotaryPositions,
)
from pipeline.errors import CheckpointError, ConfigError
from pipeline.model.encoder import KEPT, Encoder, initialize
from pipeline.model.families.own import OWN
from pipeline.model.families.table import family_of
from pipeline.model.states import attention_weights, layer_states
from pipeline.model.weights import model_settings, published_config, take_all, to_published
from pipeline.objectives.masked import MaskedTokens
from pipeline.saved.naming import identifying_settings
from tests.unit.model.test_encoder import flat_batch, sequences

pytestmark = pytest.mark.usefixtures("one_thread")

BERT = Model(layers=3, width=16, heads=2, feed_forward=24, maximum_positions=40, hidden_dropout=0, attention_dropout=0)
CHANGES = {
    "pre-norm": {"block": "pre-norm"},
    "rotary": {"positions": RotaryPositions()},
    "none": {"positions": NoPositions()},
    "geglu": {"inner": "geglu"},
    "local": {"attention": LocalAttention(window=4, global_every=2)},
    "bias": {"bias": False},
    "blocks": {"attention": BlockSparseAttention(block_size=2, random_blocks=1)},
}
ALL = {**CHANGES["pre-norm"], **CHANGES["geglu"], **CHANGES["local"], **CHANGES["bias"]}
ALL["positions"] = RotaryPositions(theta=160_000.0, local_theta=10_000.0)


def made(model: Model) -> Encoder:
    encoder = Encoder(model, 31)
    initialize(encoder, 0.3, torch.Generator().manual_seed(0))
    return encoder.eval()


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("part", "more"),
    [
        ("pre-norm", 0),  # one LayerNorm less before the first attention, one more at the end
        ("rotary", -40 * 16),
        ("none", -40 * 16),
        ("geglu", 3 * (16 + 1) * 24),  # weights and biases of the gates
        ("local", 0),
        ("blocks", 0),
        # LayerNorms: embeddings and two per layer. Linear layers: qkv, output, inner, outer; and the pooler.
        ("bias", -(16 + 3 * (2 * 16 + 3 * 16 + 16 + 24 + 16) + 16)),
    ],
)
def test_parameters_of_each_part(part: str, more: int) -> None:
    assert count(made(replace(BERT, **CHANGES[part]))) - count(made(BERT)) == more


def test_pre_norm_adds_to_the_residual_sum_and_normalises_it_at_the_end() -> None:
    encoder, batch = made(replace(BERT, block="pre-norm")), flat_batch(sequences([9, 5]))
    with torch.no_grad():
        hidden = encoder.embed(batch)
        for number, layer in enumerate(encoder.layers):
            layout = encoder.layouts(batch)[number]
            hidden = hidden + layer.attention(hidden if number == 0 else layer.attention_norm(hidden), layout)
            hidden = hidden + layer.feed_forward(layer.feed_forward_norm(hidden))
        torch.testing.assert_close(encoder(batch), encoder.final_norm(hidden))


def test_pre_norm_starts_with_small_outputs() -> None:
    post, pre = made(BERT), made(replace(BERT, block="pre-norm"))
    for output in ("attention.output", "feed_forward.outer"):
        theirs = post.layers[1].get_submodule(output).weight / 6**0.5  # 2 * 3 layers
        torch.testing.assert_close(pre.layers[1].get_submodule(output).weight, theirs)
    assert torch.equal(pre.layers[1].attention.qkv.weight, post.layers[1].attention.qkv.weight)


def test_geglu_multiplies_the_activated_half_by_the_other() -> None:
    feed_forward = made(replace(BERT, inner="geglu")).layers[0].feed_forward
    hidden = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    units, gates = feed_forward.inner(hidden).split(24, -1)
    torch.testing.assert_close(feed_forward(hidden), feed_forward.outer(nn.functional.gelu(units) * gates))


def test_without_positions_the_order_of_the_tokens_makes_no_difference() -> None:
    (ids, segments), order = sequences([9])[0], torch.tensor([0, 5, 3, 8, 1, 7, 2, 4, 6])
    one = segments * 0
    for part, equal in (("none", True), ("rotary", False)):
        encoder = made(replace(BERT, **CHANGES[part]))
        with torch.no_grad():
            straight, mixed = encoder(flat_batch([(ids, one)])), encoder(flat_batch([(ids[order], one)]))
        assert torch.allclose(mixed, straight[order], atol=1e-5) is equal


def test_local_layers_see_only_the_window_and_global_ones_see_all() -> None:
    encoder = made(replace(BERT, **CHANGES["local"]))
    batch = flat_batch(sequences([12]))
    weights = attention_weights(encoder, batch)
    distances = (torch.arange(12)[:, None] - torch.arange(12)).abs()
    for layer, local in enumerate((False, True, False)):
        assert bool((weights[layer][:, distances > 2] > 0).any()) is not local
        torch.testing.assert_close(weights[layer].sum(-1), torch.ones(2, 12))
    with torch.no_grad():
        torch.testing.assert_close(layer_states(encoder, batch)[-1], encoder(batch))


@pytest.mark.parametrize("part", [*CHANGES, "all"])
def test_a_sequence_does_not_see_its_neighbours(part: str) -> None:
    encoder, parts = made(replace(BERT, **(ALL if part == "all" else CHANGES[part]))), sequences([1, 33, 7, 40, 5])
    with torch.no_grad():
        together = encoder(flat_batch(parts)).split([len(ids) for ids, _ in parts])
        for sequence, states in zip(parts, together, strict=True):
            torch.testing.assert_close(encoder(flat_batch([sequence])), states, atol=1e-5, rtol=1e-5)


class Products(TorchDispatchMode):
    """Count the matrix products that are computed."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.name() in KEPT
        return func(*args, **(kwargs or {}))


def test_recomputed_layers_give_the_same_gradients() -> None:
    encoder, batch = made(replace(BERT, **ALL, hidden_dropout=0.3)).train(), flat_batch(sequences([33, 7, 12]))
    gradients = []
    for encoder.recompute, encoder.recompute_products in ((False, True), (True, True), (True, False)):
        encoder.zero_grad()
        torch.manual_seed(1)
        encoder(batch).square().sum().backward()
        gradients.append([parameter.grad for parameter in encoder.parameters() if parameter.grad is not None])
    torch.testing.assert_close(gradients[1], gradients[0])
    torch.testing.assert_close(gradients[2], gradients[0])


def test_layers_that_keep_their_products_hold_less_than_all_and_repeat_none() -> None:
    encoder, batch = made(replace(BERT, layers=4)).train(), flat_batch(sequences([40] * 32))
    held, products = [], []
    for encoder.recompute, encoder.recompute_products in ((False, True), (True, False), (True, True)):
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as forward:
            loss = encoder(batch).square().sum()
        with Products() as counted:
            loss.backward()
        held.append(sum(event.self_cpu_memory_usage for event in forward.events()))
        products.append(counted.count)
    assert held[0] > 1.3 * held[1] > 1.3 * held[2]
    assert products[0] == products[1] < products[2]


@pytest.mark.parametrize("part", [*CHANGES, "all"])
def test_a_bert_with_another_part_has_a_model_type_of_its_own(part: str, tmp_path: Path) -> None:
    model = replace(BERT, **(ALL if part == "all" else CHANGES[part]))
    assert family_of(model) is OWN and family_of(BERT).name == "bert" and model.family == "bert"
    config = published_config(model, 31, 0)
    assert config["model_type"] == "bertstream" and config["architectures"] == ["BertstreamForMaskedLM"]
    assert model_settings(config) == model
    module = MaskedTokens(model, 31, pairs=True)
    state = module.state_dict()
    again = take_all(to_published(state, OWN), state, model)
    assert again.keys() == state.keys() and all(torch.equal(again[name], state[name]) for name in state)


@pytest.mark.parametrize("parts", [None, 3, {"inner": "geglu"}, {"positions.theta": 0.0}])
def test_damaged_parts_are_refused(parts: object) -> None:
    config = published_config(replace(BERT, **ALL), 31, 0)
    config["parts"] = config["parts"] | parts if isinstance(parts, dict) and "inner" not in parts else parts
    with pytest.raises(CheckpointError, match=r"^config.json: parts is .* must be the parts of a model as bertstream"):
        model_settings(config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"family": "albert", "block": "pre-norm"},
            "model.block (pre-norm) must be post-norm for model.family albert: only model.family bert may have other "
            "parts",
        ),
        (
            {"family": "electra", "positions": RotaryPositions()},
            "model.positions (rotary-positions) must be learned-positions for model.family electra: only model.family "
            "bert may have other parts",
        ),
        (
            {"positions": RotaryPositions(local_theta=5.0)},
            "model.positions.local_theta (5.0) needs model.attention:local-attention: leave it out",
        ),
        (
            {"positions": RotaryPositions(), "width": 6, "heads": 2},
            "model.width (6) / model.heads (2) is 3, but rotary positions turn pairs of numbers: set an even width per "
            "head",
        ),
    ],
)
def test_parts_that_cannot_be_are_refused_in_these_words(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Model(**settings)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LocalAttention(window=1), "model.attention.window (1) must be at least 2"),
        (
            lambda: LocalAttention(window=7),
            "model.attention.window (7) must be even: half of it is on each side of a token",
        ),
        (lambda: LocalAttention(global_every=0), "model.attention.global_every (0) must be at least 1"),
        (lambda: RotaryPositions(theta=0.0), "model.positions.theta (0.0) must be above 0"),
        (lambda: RotaryPositions(local_theta=-1.0), "model.positions.local_theta (-1.0) must be above 0"),
    ],
)
def test_values_of_parts_are_refused_in_these_words(build, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build()
    assert str(refused.value) == message


def test_a_run_s_identity_names_parts_only_where_they_are_not_bert_s() -> None:
    names = {"model.positions", "model.attention", "model.inner", "model.block", "model.bias"}
    assert names <= flatten(Pretrain()).keys()
    assert not names & identifying_settings(Pretrain()).keys()
    other = identifying_settings(Pretrain(model=replace(Model(), **ALL)))
    assert names <= other.keys() and other["model.positions.theta"] == 160_000.0
    assert (Model().positions, Model().attention) == (LearnedPositions(), FullAttention())
