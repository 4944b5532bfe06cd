"""Which settings a search tries."""

from dataclasses import replace
from typing import get_args

import pytest

from pipeline.config.adapters import Bottleneck, LowRank
from pipeline.config.finetune import Finetune, GridSearch
from pipeline.config.model import FamilyName, Model
from pipeline.config.recipe import Recipe
from pipeline.config.similarity import Similarity
from pipeline.config.training import LinearDecay
from pipeline.errors import ConfigError
from pipeline.finetune.settings import GRIDS, settings_of, warnings, with_setting
from tests.conftest import tiny_preset


def config(**search: object) -> Finetune:
    return Finetune(checkpoint="c", task=("sst2",), data="d", search=GridSearch(**search))


def test_the_published_grids() -> None:
    assert settings_of(config()) == [{}]
    found = settings_of(config(grid="bert"))
    assert (
        len(found) == 18 and {"recipe.rows_per_step": 32, "optimizer.learning_rate": 2e-5, "recipe.epochs": 4} in found
    )
    found = settings_of(config(grid="miniatures"))
    assert (
        len(found) == 20
        and {one["recipe.epochs"] for one in found} == {4}
        and set(GRIDS) == set(GridSearch.__dataclass_fields__["grid"].type.__args__)
    )


def test_values_and_ranges_of_any_setting() -> None:
    found = settings_of(
        config(
            over=("recipe.rows-per-step=8,16", "optimizer.learning_rate=1e-5..1e-3", "recipe.patience=None,2"),
            samples=3,
        )
    )
    assert len(found) == 3 * 2 * 2 and found == settings_of(
        config(
            over=("recipe.rows-per-step=8,16", "optimizer.learning_rate=1e-5..1e-3", "recipe.patience=None,2"),
            samples=3,
        )
    )
    rates = {one["optimizer.learning_rate"] for one in found}
    assert (
        len(rates) == 3
        and all(1e-5 <= rate <= 1e-3 for rate in rates)
        and {one["recipe.patience"] for one in found} == {None, 2}
    )
    other = with_setting(config(), found[0])
    assert (
        other.optimizer.learning_rate == found[0]["optimizer.learning_rate"]
        and other.recipe.rows_per_step == 8
        and other.recipe.epochs == 3
    )
    assert {
        type(one[name])
        for name in ("recipe.epochs", "recipe.patience")
        for one in settings_of(config(over=(f"{name}=2..6",)))
    } == {int}
    short = [one["recipe.epochs"] for one in settings_of(config(over=("recipe.epochs=2..4",)))]
    assert len(short) == len(set(short)) <= 3  # equal draws are one setting
    assert settings_of(config(over=("recipe.pooling=cls,mean", "recipe.balance_classes=True,False")))[1] == {
        "recipe.pooling": "cls",
        "recipe.balance_classes": False,
    }


def test_kinds_are_tried_with_their_own_settings_alone() -> None:
    found = settings_of(config(over=("adapter.rank=4,8", "adapter=no-adapter,low-rank,bottleneck", "recipe.epochs=1")))
    assert found == [
        {"adapter": "NoAdapter", "recipe.epochs": 1},
        {"adapter": "LowRank", "adapter.rank": 4, "recipe.epochs": 1},
        {"adapter": "LowRank", "adapter.rank": 8, "recipe.epochs": 1},
        {"adapter": "Bottleneck", "recipe.epochs": 1},
    ]
    asked = replace(config(), adapter=LowRank(rank=2, scale=3.0))
    assert (
        with_setting(asked, {"adapter": "LowRank"}).adapter == asked.adapter
        and with_setting(asked, {"adapter": "Bottleneck"}).adapter == Bottleneck()
    )
    assert with_setting(config(), {"adapter": "LowRank", "adapter.rank": 4}).adapter == LowRank(rank=4)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "recipe.rows_per_step",
            r"search\.over \(recipe\.rows_per_step\) must be NAME=VALUE,VALUE or NAME=LOW\.\.HIGH, where NAME is one "
            r"of cutting\.maximum_length, ",
        ),
        ("seeds=1,2", r"search\.over \(seeds=1,2\) must be NAME=VALUE"),
        ("recipe.epochs=two", r"search\.over \(recipe\.epochs=two\): two is not one of int$"),
        (
            "optimizer.learning_rate=1..0.1",
            r"search\.over \(optimizer\.learning_rate=1\.\.0\.1\): a range is LOW\.\.HIGH with 0 < LOW < HIGH, such "
            r"as 1e-5\.\.1e-3$",
        ),
        (
            "recipe.pooling=1..3",
            r"search\.over \(recipe\.pooling=1\.\.3\): recipe\.pooling is not a number and has no range; give "
            r"recipe\.pooling=VALUE,VALUE$",
        ),
        (
            "freeze.embeddings=1..2",
            r"search\.over \(freeze\.embeddings=1\.\.2\): freeze\.embeddings is not a number and has no range",
        ),
        ("recipe.epochs=None", r"search\.over \(recipe\.epochs=None\): None is not one of int$"),
        (
            "recipe.pooling=cls,maen",
            r"search\.over \(recipe\.pooling=cls,maen\): maen is not one of cls, mean, attention$",
        ),
        ("recipe.balance_classes=yes", r"search\.over \(recipe\.balance_classes=yes\): yes is not one of bool$"),
        ("adapter=lora", r"search\.over \(adapter=lora\): lora is not one of no-adapter, low-rank, bottleneck$"),
        ("adapter.rank=4", r"search\.over \(adapter\.rank=4\) must be NAME=VALUE"),
        ("adapter=1..2", r"search\.over \(adapter=1\.\.2\): adapter is not a number and has no range"),
        ("cutting.maximum_length=4", r"cutting\.maximum_length \(4\) must be at least 8"),
        ("recipe.rows_per_step=0", r"rows_per_step \(0\) must be at least 1"),
    ],
)
def test_what_cannot_be_searched_is_one_line(entry: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(config(over=(entry,)))


@pytest.mark.parametrize("again", ["recipe.rows-per-step=32", "recipe.rows_per_step=32..64"])
def test_a_setting_is_searched_once(again: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^search\.over \(recipe\.rows_per_step\) is given twice: give all values in one "
        r"--search\.over recipe\.rows_per_step=VALUE,VALUE$",
    ):
        settings_of(config(over=("recipe.rows_per_step=8,16", again)))
    assert len(settings_of(config(grid="bert", over=("recipe.rows_per_step=8",)))) == 9


def test_rates_far_above_the_usual_and_no_warm_up_are_warned_of() -> None:
    model = Model(width=1024, heads=16)
    assert (
        warnings(config(), [{}], replace(model, width=128))
        == warnings(config(), [{"optimizer.learning_rate": 1e-3}], replace(model, width=256))
        == warnings(config(), [{"optimizer.learning_rate": 1e-4}], model)
        == []
    )
    assert warnings(config(), [{"optimizer.learning_rate": 1e-3}, {}], model) == [
        "warning: optimizer.learning_rate 0.001 is far above 5e-05, which is usual at width 1024: the encoder may "
        "forget what it learnt"
    ]
    (line,) = warnings(replace(config(), schedule=LinearDecay(warmup_share=0.0)), [{}], model)
    assert line.startswith("warning: schedule.warmup_share is 0")


def test_training_without_dropout_is_warned_of() -> None:
    without = replace(config(), recipe=Recipe(dropout=0.0))
    assert warnings(without, [{}], Model()) == [
        "warning: recipe.dropout is 0: small tasks overfit without dropout; 0.1 is the default and the published value"
    ]
    assert (
        warnings(config(), [{}], Model(hidden_dropout=0.0, attention_dropout=0.0))
        == warnings(without, [{"recipe.dropout": 0.2}], Model())
        == warnings(config(), [{"recipe.dropout": 0.0}, {"recipe.dropout": 0.1}], Model())
        == []
    )


@pytest.mark.parametrize("family", get_args(FamilyName))
def test_every_family_is_fine_tuned_with_dropout(family: FamilyName) -> None:
    model = tiny_preset(family).model
    undropped = replace(model, hidden_dropout=0.0, attention_dropout=0.0)
    assert Recipe().for_dropout(undropped).dropouts(undropped) == (0.1, 0.1)
    assert Recipe().for_dropout(model).dropouts(model) == (0.1, 0.1)
    assert Recipe(dropout=0.0).for_dropout(undropped).dropouts(undropped) == (0.0, 0.0)
    # a checkpoint with this dropout keeps the names of its trials, in which dropout is unset
    assert Recipe().for_dropout(replace(model, hidden_dropout=0.1, attention_dropout=0.1)) == Recipe()


def test_rates_fall_from_layer_to_layer_for_electra_where_nothing_else_is_asked() -> None:
    plain = Finetune(checkpoint="a", task=("sst2",))
    models = [tiny_preset(family).model for family in get_args(FamilyName)]
    decays = {model.family: plain.for_model(model).optimizer.layer_decay for model in models}
    fallen = {"electra": 0.8}
    assert decays == {family: fallen.get(family, 1.0) for family in get_args(FamilyName)}
    for decay in (1.0, 0.9):
        asked = replace(plain, optimizer=replace(plain.optimizer, layer_decay=decay))
        models = [model for model in models if decay == 1.0 or model.family != "albert"]  # ALBERT refuses a decay
        assert [asked.for_model(model).optimizer.layer_decay for model in models] == [decay] * len(models)
    with pytest.raises(ConfigError, match=r"optimizer\.layer_decay \(1.5\) must be above 0 and at most 1"):
        replace(plain.optimizer, layer_decay=1.5)


def test_the_learning_rate_is_the_one_asked_for_or_that_of_the_encoder_s_width() -> None:
    plain = Finetune(checkpoint="a", task=("sst2",))
    widths = [Model(width=width) for width in (128, 256, 512, 768, 1024)]
    assert [plain.for_model(model).optimizer.learning_rate for model in widths] == [
        3e-4,
        3e-4,
        1e-4,
        5e-5,
        5e-5,
    ]
    asked = replace(plain, optimizer=replace(plain.optimizer, learning_rate=2e-5))
    assert asked.for_model(Model(width=128)).optimizer.learning_rate == 2e-5
    with pytest.raises(ConfigError, match=r"optimizer\.learning_rate \(2\) must lie between 0 and 1"):
        replace(plain.optimizer, learning_rate=2)
    with pytest.raises(ConfigError, match=r"optimizer\.beta1 \(1\) must be at least 0 and below 1"):
        replace(plain.optimizer, beta1=1)


def test_a_tried_loss_has_only_its_own_settings() -> None:
    base = Finetune(checkpoint="c", train="a.csv", kind="similarity", similarity=Similarity(loss="triplet"))
    over = ("similarity.temperature=0.1,0.2", "similarity.margin=1.0", "similarity.loss=contrastive,triplet")
    assert settings_of(replace(base, search=GridSearch(over=over))) == [
        {"similarity.loss": "contrastive", "similarity.temperature": 0.1},
        {"similarity.loss": "contrastive", "similarity.temperature": 0.2},
        {"similarity.loss": "triplet", "similarity.margin": 1.0},
    ]
    with pytest.raises(
        ConfigError, match=r"^similarity.temperature \(0.1\) is for similarity.loss cosent and contrasti"
    ):
        settings_of(replace(base, search=GridSearch(over=over[:1])))
