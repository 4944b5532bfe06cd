"""Rows of the tables by kind of task: what they say of each other, and settings that they refuse."""

import pytest

from pipeline.config.adapters import Freeze
from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.similarity import Similarity
from pipeline.config.task_kind import Kind
from pipeline.errors import ConfigError
from pipeline.finetune.kinds import TRAINING
from pipeline.objectives.tasks import OBJECTIVES
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.schema import ENCODED
from pipeline.tasks.task import Task

MODEL = Model(layers=2, width=16, heads=2, feed_forward=32)


def test_kinds_of_saved_models_can_be_built() -> None:
    assert {handlers.saved_as or kind for kind, handlers in KINDS.items()} == set(OBJECTIVES) < set(KINDS)


def test_labels_stand_in_columns_of_encoded_rows() -> None:
    assert {handlers.label_column for handlers in KINDS.values()} == {"label", "labels"} < set(ENCODED.names)


def test_vectors_are_trained_by_the_settings_of_similarity() -> None:
    vectors = {kind for kind, handlers in KINDS.items() if handlers.makes_vectors}
    assert {kind for kind, handlers in TRAINING.items() if "similarity" in handlers.groups} == vectors


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (
            "choices",
            {"register": "mine"},
            "register (mine) is not possible, because own is of kind choices, whose models MLflow cannot serve here: "
            "leave register out",
        ),
        (
            "relations",
            {"similarity": Similarity(loss="softmax"), "freeze": Freeze(layers=2, embeddings=True)},
            "freeze.layers (2) and freeze.embeddings (True) leave nothing to train, because own is of kind relations "
            "and its head is not saved: lower freeze.layers",
        ),
        (
            "similarity",
            {"freeze": Freeze(layers=2, embeddings=True)},
            "freeze.layers (2) and freeze.embeddings (True) leave nothing to train, because own is of kind similarity "
            "and has no head: lower freeze.layers",
        ),
        (
            "similarity",
            {"similarity": Similarity(dimensions=(8, 32))},
            "similarity.dimensions (32) must be at most the checkpoint's width (16)",
        ),
    ],
)
def test_settings_that_do_not_fit_a_kind_are_refused(kind: Kind, settings: dict, message: str) -> None:
    config = Finetune(checkpoint="/m", train="/own.csv", **settings)
    with pytest.raises(ConfigError) as refused:
        TRAINING[kind].require_fitting(config, Task(name="own", kind=kind, metrics=("m",)), MODEL)
    assert str(refused.value) == message
