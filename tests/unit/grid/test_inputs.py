"""Settings that do not fit together are refused while a grid is read, before Ray starts."""

from pathlib import Path

import pytest

from pipeline.config.cutting import Cutting
from pipeline.config.finetune import Finetune, Freeze, Recipe, Search, Trials
from pipeline.config.ranking import Ranking
from pipeline.errors import ConfigError
from pipeline.grid.inputs import read_inputs
from pipeline.train.checkpoint import folder_of

FEW = Recipe(contrastive_pairs=2, pooling="mean")
FEW_LABELS = (
    "recipe.contrastive_pairs (2) trains an encoder on classes of single texts and fits a linear head, but {}: leave "
    "the setting out"
)


def config(tiny_run: Path, glue: Path, output: Path, **settings) -> Finetune:
    usual = {"task": ("cola",), "cutting": Cutting(maximum_length=32, stride=8)}
    return Finetune(checkpoint=folder_of(str(tiny_run), 3), data=str(glue), output=str(output), **usual | settings)


def test_an_encoder_and_tasks_are_read_once_per_cutting(tiny_run: Path, glue: Path, tmp_path: Path) -> None:
    found = read_inputs(config(tiny_run, glue, tmp_path, trials=Trials(workers=2)), print)
    assert list(found.problems) == ["cola"] and found.settings == [{}] and found.config.optimizer.learning_rate


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"trials": Trials(workers=2), "recipe": Recipe(rows_per_step=16, rows_per_slot=16)},
            "recipe.rows_per_slot (16) must be at most 8 with trials.workers (2) and "
            "recipe.rows_per_step (16): otherwise a worker gets no rows",
        ),
        (
            {"trials": Trials(workers=9), "search": Search(over=("recipe.rows_per_step=16,8",))},
            "trials.workers (9) must be at most recipe.rows_per_step (8): each worker needs a row of every step",
        ),
        (
            {"task": ("stsb",), "recipe": Recipe(rows_per_class=8)},
            "recipe.rows_per_class (8) is for classification, but stsb is regression: set recipe.training_rows",
        ),
        (
            {"ranking": Ranking(loss="softmax")},
            "ranking.loss (softmax) is for kind ranking, but cola is classification: leave the setting out, or give "
            "--kind ranking",
        ),
        ({"recipe": FEW, "task": ("stsb",)}, FEW_LABELS.format("stsb is regression")),
        (
            {"recipe": FEW, "freeze": Freeze(layers=2, embeddings=True)},
            FEW_LABELS.format("the whole encoder is frozen"),
        ),
        (
            {"recipe": FEW, "cutting": Cutting(maximum_length=32, passages=True)},
            FEW_LABELS.format("cutting.passages is True"),
        ),
        ({"freeze": Freeze(layers=7)}, "freeze.layers (7) must be at most the checkpoint's layers (2)"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(
    settings: dict, message: str, tiny_run: Path, glue: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_inputs(config(tiny_run, glue, tmp_path, **settings), print)
    assert str(refused.value) == message
