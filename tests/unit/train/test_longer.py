"""A published model as the start of a longer one: which tensors are copied where, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.model_parts import GlobalLocalAttention, RotaryPositions
from pipeline.errors import ConfigError
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.optim.build import build_optimizer
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.checkpoint import State, save
from pipeline.train.initial import Initial, agreed_model, load_initial, read_initial
from pipeline.train.longer import description, longer_model, repeated
from tests.conftest import of_family
from tests.unit.model.test_encoder import flat_batch, sequences

pytestmark = pytest.mark.usefixtures("one_thread")

POSITIONS = "encoder.embeddings.positions.weight"
WINDOW = GlobalLocalAttention(window=8)


def start(family: str, config: Pretrain, vocabulary: Vocabulary, folder: Path) -> tuple[Initial, Pretraining]:
    """A model of 32 positions in the published format, as a run reads it."""
    own = of_family(family, config, vocabulary)
    module = build_objective(own.objective, own.sampling, own.model, vocabulary.size)
    location = save(str(folder / "run"), State(step=1), module, build_optimizer(own.optimizer, module), vocabulary)
    return read_initial(location, own.vocabulary, str(folder / "out"), print), module


def continued(initial: Initial, model: Model, config: Pretrain) -> tuple[Model, MaskedTokens]:
    """The settings and the module of a run that continues the model."""
    agreed = agreed_model(model, initial, "MODEL")
    module = MaskedTokens(agreed, initial.vocabulary.size, pairs=False)
    load_initial(initial, module)
    return agreed, module


def test_positions_are_repeated_after_the_rows_that_occur_once() -> None:
    table = torch.arange(10.0).view(5, 2)  # two unused rows, then three positions
    expected = [0, 1, 2, 3, 4, 2, 3, 4, 2]
    assert repeated(table, 2, 9)[:, 0].tolist() == [2.0 * row for row in expected]
    assert repeated(table, 0, 12)[:, 0].tolist() == [2.0 * row for row in [*range(5), *range(5), 0, 1]]


def test_a_roberta_continues_as_a_longformer(
    tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    initial, roberta = start("roberta", tiny_config, tiny_vocabulary, tmp_path)
    first = initial.model.first_position
    chosen = replace(initial.model, family="longformer", attention=WINDOW, maximum_positions=100)
    agreed, module = continued(initial, chosen, tiny_config)
    assert agreed == chosen
    given, found = roberta.state_dict(), module.state_dict()
    assert torch.equal(found[POSITIONS][: first + 32], given[POSITIONS])
    for start_row in (32, 64, 96):
        rows = found[POSITIONS][first + start_row : first + start_row + 32]
        assert torch.equal(rows, given[POSITIONS][first : first + len(rows)])
    for layer in range(2):
        parts = [found[f"encoder.layers.{layer}.attention.global_{part}.weight"] for part in ("query", "key", "value")]
        assert torch.equal(torch.cat(parts), given[f"encoder.layers.{layer}.attention.qkv.weight"])
        parts = [found[f"encoder.layers.{layer}.attention.global_{part}.bias"] for part in ("query", "key", "value")]
        assert torch.equal(torch.cat(parts), given[f"encoder.layers.{layer}.attention.qkv.bias"])
    same = [name for name in given if name != POSITIONS]
    assert all(torch.equal(found[name], given[name]) for name in same)
    assert {name for name in found if name not in given} == {name for name in found if ".global_" in name}
    assert description(initial.model, agreed) == (
        "init: embeddings of 32 positions copied again and again to 100; the RoBERTa continues as a Longformer; query, "
        "key and value copied to the projections of global tokens"
    )
    short = flat_batch(sequences([5, 3]))  # a token sees 4 on each side
    with torch.no_grad():
        roberta.eval(), module.eval()
        torch.testing.assert_close(module.encoder(short), roberta.encoder(short))
        module.encoder.choose_global_tokens("first")  # its projections are copies, so the first token sees the same
        torch.testing.assert_close(module.encoder(short), roberta.encoder(short))


@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "albert", "longformer"])
def test_the_same_family_continues_with_more_positions(
    family: str, tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    config = replace(tiny_config, model=replace(tiny_config.model, hidden_dropout=0.0, attention_dropout=0.0))
    initial, module = start(family, config, tiny_vocabulary, tmp_path)
    first, preset = initial.model.first_position, replace(Model(), maximum_positions=65)
    if family != "bert":
        preset = replace(initial.model, maximum_positions=65)
    agreed, longer = continued(initial, preset, tiny_config)
    assert agreed == replace(initial.model, maximum_positions=65)
    given, found = module.state_dict(), longer.state_dict()
    wanted = torch.cat((given[POSITIONS], given[POSITIONS][first:], given[POSITIONS][first : first + 1]))
    assert torch.equal(found[POSITIONS], wanted)
    assert all(torch.equal(found[name], given[name]) for name in found if name in given and name != POSITIONS)
    assert description(initial.model, agreed) == "init: embeddings of 32 positions copied again and again to 65"


def test_a_model_stays_as_it_is_where_nothing_longer_is_asked_for() -> None:
    model = Model(maximum_positions=128)
    for chosen in (Model(), Model(maximum_positions=128), Model(maximum_positions=64)):
        assert longer_model(chosen, model) == model and description(model, model) is None
    rotary = replace(model, positions=RotaryPositions())
    assert longer_model(replace(rotary, maximum_positions=1_024), rotary) == rotary  # it has no table to copy


def test_checkpoints_of_pretraining_have_copies_for_global_tokens(
    training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    config = replace(of_family("longformer", tiny_config, tiny_vocabulary), steps=2)
    before = training.module(config).state_dict()
    training.run(config, tmp_path, {})
    found = load_file(next(tmp_path.glob("checkpoints/*/model.safetensors")))
    for part in ("query", "key", "value"):
        own, copied = (
            found[f"longformer.encoder.layer.1.attention.self.{name}.weight"] for name in (part, f"{part}_global")
        )
        assert torch.equal(own, copied)
        assert not torch.equal(copied, before[f"encoder.layers.1.attention.global_{part}.weight"])


def test_other_starts_are_refused_in_these_words(
    tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    initial, _ = start("bert", tiny_config, tiny_vocabulary, tmp_path)
    leave = "(preset continue sets no model settings), or choose another init"
    with pytest.raises(ConfigError) as refused:
        agreed_model(Model(maximum_positions=16), initial, "MODEL")
    assert str(refused.value) == (
        "model.maximum_positions (16) differs from max_position_embeddings (32) in the config.json of init MODEL: "
        f"leave model.maximum_positions out {leave}"
    )
    chosen = of_family("longformer", tiny_config, tiny_vocabulary).model
    with pytest.raises(ConfigError) as refused:
        agreed_model(chosen, initial, "MODEL")
    assert str(refused.value) == (
        "model.family (longformer) differs from model_type (bert) in the config.json of init MODEL: leave model.family "
        f"out {leave}"
    )
