"""Report of an encoder whose files lack a pooler."""

from dataclasses import replace

import pytest

from pipeline.config.finetune import Finetune
from pipeline.config.model import Model
from pipeline.config.recipe import Recipe
from pipeline.config.task_kind import Kind
from pipeline.finetune.encoder import report_missing_pooler
from pipeline.tasks.task import Task
from pipeline.train.initial import Initial

SAID = ["checkpoint: bert.pooler not in the model, so initialised at random"]
WITHOUT = Initial(
    folder="",
    fingerprint="",
    model=Model(layers=1, width=16, heads=2, feed_forward=32),
    vocabulary=None,  # ty: ignore[invalid-argument-type]  (not read here)
    missing=("bert.pooler.dense.bias", "bert.pooler.dense.weight"),
)


@pytest.mark.parametrize(
    ("kind", "pooling", "said"),
    [
        ("classification", "cls", SAID),
        ("regression", "cls", SAID),
        ("classification", "mean", []),
        ("choices", "mean", SAID),
        ("tags", "cls", []),
        ("spans", "cls", []),
        ("similarity", "cls", []),
    ],
)
def test_a_missing_pooler_is_reported_where_a_head_reads_it(kind: Kind, pooling: str, said: list[str]) -> None:
    config = Finetune(checkpoint="c", task=("a",), recipe=Recipe(pooling=pooling))  # ty: ignore[invalid-argument-type]
    for initial, expected in ((WITHOUT, said), (replace(WITHOUT, missing=()), [])):
        lines: list[str] = []
        report_missing_pooler(config, initial, [Task(name="a", kind=kind, metrics=("m",))], lines.append)
        assert lines == expected
