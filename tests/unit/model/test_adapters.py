import math
import typing
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from pipeline.batch import TaskBatch
from pipeline.config.adapters import Adapter, Bottleneck, Freeze, LowRank, NoAdapter
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.training import AdamW
from pipeline.errors import CheckpointError, ConfigError
from pipeline.model.adapters import (
    ADAPTERS,
    LowRankLinear,
    adapter_state,
    add_adapter,
    freeze,
    load_adapter_state,
    merge,
    plain_state,
)
from pipeline.model.attention import layout_of
from pipeline.model.families.bert import BERT
from pipeline.model.weights import published_names, to_published
from pipeline.objectives.sequences import SequenceTask
from pipeline.optim.build import build_optimizer
from pipeline.train.step import update

SETTINGS = Model(
    layers=2,
    width=16,
    heads=2,
    feed_forward=32,
    maximum_positions=12,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    initializer_deviation=0.3,
)
pytestmark = pytest.mark.usefixtures("one_thread")

CLASSES = 3
LENGTHS = [12, 3, 7, 1]
KINDS = [
    LowRank(rank=2),
    LowRank(rank=2, dropout=0.3),
    LowRank(rank=3, scale=5.0, everywhere=True),
    Bottleneck(width=4),
]


def make_batch() -> TaskBatch:
    generator, tokens = torch.Generator().manual_seed(0), sum(LENGTHS)
    return TaskBatch(
        ids_T=torch.randint(0, 31, (tokens,), generator=generator),
        segments_T=torch.randint(0, 2, (tokens,), generator=generator),
        positions_T=torch.cat([torch.arange(length) for length in LENGTHS]),
        offsets=torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)], dtype=torch.int32),
        maximum_length=max(LENGTHS),
        labels=torch.tensor([0.0, 1.0, 2.0, 1.0]),
        teacher=torch.zeros(0),
    )


def plain() -> SequenceTask:
    return SequenceTask(SETTINGS, 31, CLASSES, torch.Generator().manual_seed(0))


def adapted(adapter: Adapter) -> SequenceTask:
    module = plain()
    add_adapter(module, adapter, torch.Generator().manual_seed(1))
    return module


def copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def train(module: SequenceTask, steps: int = 3) -> SequenceTask:
    """A few steps on one batch; the module is left in evaluation."""
    optimizer, batch = build_optimizer(AdamW(learning_rate=0.01), module), make_batch()
    module.train()
    for _ in range(steps):
        total, count = module(batch)["task"]
        (total / count).backward()
        update(optimizer, module, rate=0.01, clip_norm=1.0)
    return module.eval()


def logits(module: SequenceTask) -> Tensor:
    with torch.no_grad():
        return module.eval().logits(make_batch())


def trained_names(module: nn.Module) -> set[str]:
    return {name for name, parameter in module.named_parameters() if parameter.requires_grad}


def test_every_kind_of_adapter_has_its_function() -> None:
    assert set(ADAPTERS) == set(typing.get_args(Adapter))


@pytest.mark.parametrize("adapter", [NoAdapter(), *KINDS])
def test_an_adapted_model_starts_as_the_plain_one(adapter: Adapter) -> None:
    wanted, found = logits(plain()), logits(adapted(adapter))
    if isinstance(adapter, Bottleneck):
        assert not torch.equal(found, wanted)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)
    else:
        assert torch.equal(found, wanted)


# One layer's: queries and values 2 * 2 * 16 * rank each; everywhere 3 of these, output 2 * 16 * rank, inner and outer
# (16 + 32) * rank each; a bottleneck 16 * 4 + 4 + 4 * 16 + 16 = 148, twice. Five LayerNorms of 32; pooler 272 and head
# 51 always; all of the model is 5,523.
@pytest.mark.parametrize(
    ("adapter", "count"),
    [
        (NoAdapter(), 752 + 2 * (816 + 272 + 544 + 528 + 64) + 323),
        (LowRank(rank=2), 2 * 2 * (32 + 32) + 323),
        (LowRank(rank=2, everywhere=True), 2 * (3 * 64 + 64 + 96 + 96) + 323),
        (Bottleneck(width=4), 2 * 2 * 148 + 5 * 32 + 323),
    ],
)
def test_so_many_parameters_train(adapter: Adapter, count: int) -> None:
    assert sum(parameter.numel() for parameter in adapted(adapter).parameters() if parameter.requires_grad) == count


def test_low_rank_parameters_are_the_published_number() -> None:
    # Hu et al. 2021, table 2: 0.3 M for a base model at rank 8; 12 layers * 2 matrices * 8 * (768 + 768).
    with torch.device("meta"):
        module = SequenceTask(Model(layers=12, width=768, heads=12, feed_forward=3072), 30_522, 2)
    add_adapter(module, LowRank())
    assert sum(tensor.numel() for tensor in adapter_state(module).values()) == 294_912


@pytest.mark.parametrize("adapter", KINDS)
def test_frozen_weights_stay_to_the_bit_and_all_others_move(adapter: Adapter) -> None:
    module = adapted(adapter)
    before, moving = copied(module.state_dict()), trained_names(module)
    train(module)
    assert {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])} == moving
    heads = {"encoder.pooler.weight", "encoder.pooler.bias", "classification_head.weight", "classification_head.bias"}
    norms = {name for name in before if "norm." in name} if isinstance(adapter, Bottleneck) else set()
    assert moving == heads | norms | set(adapter_state(module))


def test_low_rank_is_the_formula() -> None:
    generator = torch.Generator().manual_seed(2)
    linear, states = nn.Linear(6, 12), torch.randn(5, 6, generator=generator)
    layer = LowRankLinear(linear, LowRank(rank=4, scale=10.0), generator, ("query", "key", "value"), ("query", "value"))
    for change in layer.changes.values():
        nn.init.normal_(change.up, generator=generator)
    wanted = states @ linear.weight.T + linear.bias
    for part, rows in (("query", slice(0, 4)), ("value", slice(8, 12))):
        change = layer.changes[part]
        wanted[:, rows] += 10.0 / 4 * (states @ change.down.T @ change.up.T)
    torch.testing.assert_close(layer(states), wanted, atol=1e-6, rtol=1e-6)


def test_low_rank_starts_as_published() -> None:
    change = LowRankLinear(nn.Linear(64, 64), LowRank(rank=32), torch.Generator().manual_seed(0)).changes["whole"]
    assert not change.up.any()
    # Uniform between -1 / sqrt(64) and 1 / sqrt(64), whose deviation is 1 / sqrt(3 * 64).
    assert 0.12 < change.down.abs().max() <= 0.125
    assert change.down.std().item() == pytest.approx(1 / math.sqrt(192), rel=0.05)


def test_dropout_thins_what_the_change_reads_in_training_alone() -> None:
    linear, states = nn.Linear(8, 8), torch.ones(4, 8)
    layer = LowRankLinear(linear, LowRank(rank=2, dropout=0.5), None)
    nn.init.ones_(layer.changes["whole"].up)
    assert not torch.equal(layer(states), layer(states))
    layer.eval()
    assert torch.equal(layer(states), layer(states))


def test_a_bottleneck_follows_the_dropout_of_attention_and_of_feed_forward() -> None:
    # Where dropout takes everything, what a layer adds to its input is what the bottlenecks make of zeros: their last
    # bias.
    module = adapted(Bottleneck(width=4))
    layer = module.encoder.layers[0]
    layer.dropout = 1.0
    for part, value in ((layer.attention_adapter, 2.0), (layer.feed_forward_adapter, 3.0)):
        part.up.bias.data[0] = value
    hidden, seen = torch.randn(5, 16, generator=torch.Generator().manual_seed(0)), []
    layer.attention_norm.register_forward_hook(lambda _, given, out: seen.extend([given[0] - hidden, out]))
    layer.feed_forward_norm.register_forward_hook(lambda _, given, out: seen.append(given[0] - seen[1]))
    batch = replace(
        make_batch(),
        offsets=torch.tensor([0, 5], dtype=torch.int32),
        ids_T=torch.zeros(5, dtype=torch.int64),
        positions_T=torch.arange(5),
        maximum_length=5,
    )
    layer.train()(hidden, layout_of(batch))
    for added, value in ((seen[0], 2.0), (seen[2], 3.0)):
        torch.testing.assert_close(added, torch.tensor([value] + [0.0] * 15).expand(5, 16), atol=1e-5, rtol=0)


@pytest.mark.parametrize("adapter", [adapter for adapter in KINDS if isinstance(adapter, LowRank)])
def test_merged_it_is_the_plain_model_with_other_weights(adapter: LowRank) -> None:
    module = train(adapted(adapter))
    wanted = logits(module)
    merge(module)
    torch.testing.assert_close(logits(module), wanted, atol=1e-6, rtol=1e-6)
    names = {name: tensor.shape for name, tensor in plain().state_dict().items()}
    assert {name: tensor.shape for name, tensor in module.state_dict().items()} == names
    assert set(to_published(module.state_dict(), BERT)) == {
        published for name in names for published in published_names(name, BERT)
    }
    assert {type(part) for part in module.encoder.layers.modules() if isinstance(part, nn.Linear)} == {nn.Linear}


def test_merged_keys_are_those_of_before() -> None:
    before = copied(plain().state_dict())
    module = train(adapted(LowRank(rank=2)))
    merge(module)
    for layer in range(2):
        name = f"encoder.layers.{layer}.attention.qkv.weight"
        query, key, value = (
            torch.equal(one, other)
            for one, other in zip(module.state_dict()[name].chunk(3), before[name].chunk(3), strict=True)
        )
        assert (query, key, value) == (False, True, False)


@pytest.mark.parametrize("adapter", KINDS)
def test_adapters_travel_beside_published_weights(adapter: Adapter) -> None:
    module = train(adapted(adapter))
    assert plain_state(module).keys() == plain().state_dict().keys()
    other = plain()
    other.load_state_dict(plain_state(module))
    add_adapter(other, adapter, torch.Generator().manual_seed(7))
    assert not torch.equal(logits(other), logits(module))
    load_adapter_state(other, copied(adapter_state(module)))
    assert torch.equal(logits(other), logits(module))


def test_adapters_that_do_not_fit_are_refused() -> None:
    module, name = adapted(Bottleneck(width=4)), "encoder.layers.0.attention_adapter.down.weight"
    state = copied(adapter_state(module))
    with pytest.raises(
        CheckpointError,
        match=rf"^adapter tensor {name} has shape \[5, 16\], but the adapter's settings give \[4, 16\]$",
    ):
        load_adapter_state(module, state | {name: torch.zeros(5, 16)})
    with pytest.raises(
        CheckpointError, match="^adapter tensor a is unexpected: load the adapter with its settings from training$"
    ):
        load_adapter_state(module, state | {"a": torch.zeros(1)})
    del state[name]
    with pytest.raises(
        CheckpointError, match=f"^adapter tensor {name} is missing: load the adapter with its settings from training$"
    ):
        load_adapter_state(module, state)


def with_gradient(module: SequenceTask) -> list[bool]:
    """Whether a backward runs through the output of the embeddings and of each layer."""
    found: list[bool] = []
    for part in (module.encoder.embeddings, *module.encoder.layers):
        part.register_forward_hook(lambda _, given, hidden: found.append(hidden.requires_grad))
    module(make_batch())
    return found


@pytest.mark.parametrize(
    ("adapter", "layers", "embeddings", "wanted"),
    [
        (NoAdapter(), 0, False, [True, True, True]),
        (NoAdapter(), 0, True, [False, True, True]),
        (NoAdapter(), 1, True, [False, False, True]),
        (NoAdapter(), 2, True, [False, False, False]),
        (NoAdapter(), 1, False, [True, True, True]),
        (LowRank(rank=2), 0, False, [False, True, True]),
        (LowRank(rank=2), 1, False, [False, False, True]),
        (Bottleneck(width=4), 0, False, [True, True, True]),
        (Bottleneck(width=4), 1, True, [False, False, True]),
    ],
)
def test_no_backward_runs_where_nothing_below_trains(
    adapter: Adapter, layers: int, embeddings: bool, wanted: list[bool]
) -> None:
    module = adapted(adapter)
    freeze(module, layers, embeddings)
    assert with_gradient(module) == wanted


@pytest.mark.parametrize("adapter", KINDS)
def test_adapters_compute_in_the_layers_dtype_with_full_precision_gradients(adapter: Adapter) -> None:
    module, types = adapted(adapter), set()
    module.encoder.layers[0].attention.qkv.register_forward_hook(lambda _, given, out: types.add(out.dtype))
    module.encoder.layers[0].feed_forward_adapter.register_forward_hook(lambda _, given, out: types.add(out.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        module(make_batch())["task"][0].backward()
    assert types == {torch.bfloat16}
    assert {parameter.grad.dtype for parameter in module.parameters() if parameter.requires_grad} == {torch.float32}
    assert all(parameter.grad is None for parameter in module.parameters() if not parameter.requires_grad)


def test_frozen_parts_stay_and_the_others_move() -> None:
    module = plain()
    freeze(module, 1, True)
    before = copied(module.state_dict())
    train(module)
    stayed = {name for name, tensor in module.state_dict().items() if torch.equal(tensor, before[name])}
    assert stayed == {name for name in before if name.startswith(("encoder.embeddings.", "encoder.layers.0."))}


@pytest.mark.parametrize("family_config", ["deberta", "deberta-v2", "modernbert"], indirect=True)
def test_relative_embeddings_and_a_final_norm_are_frozen_too(family_config: Pretrain) -> None:
    model = family_config.model

    def trained(adapter: Adapter, layers: int = 0, embeddings: bool = False) -> set[str]:
        module = SequenceTask(model, 31, CLASSES)
        add_adapter(module, adapter)
        freeze(module, layers, embeddings)
        names = {name.removeprefix("encoder.") for name in trained_names(module) if name.startswith("encoder.")}
        return {name for name in names if not name.startswith("layers.")}

    final = {"final_norm.weight"} & trained(NoAdapter())
    assert bool(final) == (model.family == "modernbert")
    assert trained(LowRank()) == set()
    assert final <= trained(Bottleneck()) and all("norm." in name for name in trained(Bottleneck()))
    assert trained(NoAdapter(), embeddings=True) == trained(NoAdapter(), model.layers - 1, True) == final
    assert trained(NoAdapter(), model.layers, True) == set()


def test_more_frozen_layers_than_there_are_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^freeze.layers \(3\) must be at most the model's layers \(2\)$"):
        freeze(plain(), 3, False)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LowRank(rank=0), "adapter.rank (0) must be at least 1"),
        (lambda: LowRank(scale=0.0), "adapter.scale (0.0) must be above 0"),
        (lambda: LowRank(dropout=1.0), "adapter.dropout (1.0) must be at least 0 and below 1"),
        (lambda: LowRank(dropout=-0.1), "adapter.dropout (-0.1) must be at least 0 and below 1"),
        (lambda: Bottleneck(width=0), "adapter.width (0) must be at least 1"),
        (lambda: Freeze(layers=-1), "freeze.layers (-1) must be at least 0"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_words(make, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == words
