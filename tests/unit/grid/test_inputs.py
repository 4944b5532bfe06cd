"""Settings that do not fit together are refused while a grid is read, before Ray starts."""

from pathlib import Path

import pytest

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune, Freeze, GridSearch, Trials
from pipeline.config.ranking import Ranking
from pipeline.config.recipe import Recipe
from pipeline.errors import ConfigError, DataError
from pipeline.grid.inputs import read_inputs
from pipeline.saved.checkpoints import folder_of

FEW = Recipe(contrastive_pairs=2, pooling="mean")
FEW_LABELS = (
    "recipe.contrastive_pairs (2) trains an encoder on classes of single texts and fits a linear head, but {}: leave "
    "the setting out"
)


def config(tiny_run: Path, glue: Path, output: Path, **settings) -> Finetune:
    usual = {"task": ("cola",), "cutting": Truncation(maximum_length=32, stride=8)}
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
            {"trials": Trials(workers=9), "search": GridSearch(over=("recipe.rows_per_step=16,8",))},
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
        (
            {"task": ("stsb",), "recipe": Recipe(balance_classes=True)},
            "recipe.balance_classes (True) is for classification and tags, but stsb is regression: leave the setting "
            "out",
        ),
        ({"recipe": FEW, "task": ("stsb",)}, FEW_LABELS.format("stsb is regression")),
        (
            {"recipe": FEW, "freeze": Freeze(layers=2, embeddings=True)},
            FEW_LABELS.format("the whole encoder is frozen"),
        ),
        (
            {"recipe": FEW, "cutting": Truncation(maximum_length=32, passages=True)},
            FEW_LABELS.format("cutting.passages is True"),
        ),
        (
            {"recipe": Recipe(crf=True)},
            "recipe.crf (True) is for tags, but cola is classification: leave the setting out",
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


@pytest.mark.parametrize(
    ("tags", "recipe", "error", "message"),
    [
        ("O B-X O", FEW, ConfigError, FEW_LABELS.format("words is tags")),
        (
            "NN VB DT",
            Recipe(crf=True),
            ConfigError,
            "recipe.crf (True) needs tags of the scheme IOB2 (O, B-TYPE, I-TYPE) or BIOES (also E-TYPE, S-TYPE), but "
            "words has the tags DT, NN, VB: leave the setting out",
        ),
        (
            "O E-X S-Y",
            Recipe(crf=True),
            DataError,
            "train: in sentence 1, the word 'lost' has the tag I-X after O, which IOB2 forbids: correct the tags or "
            "leave the sentence out, or leave recipe.crf out",
        ),
    ],
)
def test_tags_that_fit_no_recipe_are_refused(
    tags: str, recipe: Recipe, error: type[Exception], message: str, tiny_run: Path, tmp_path: Path
) -> None:
    file = tmp_path / "words.conll"
    lines = "\n".join(f"{word} {tag}" for word, tag in zip(("kar", "lost", "mir"), tags.split(), strict=True))
    file.write_text(f"{lines}\n\n" * 20)
    config = Finetune(
        checkpoint=folder_of(str(tiny_run), 3),
        train=str(file),
        dev=str(file),
        kind="tags",
        output=str(tmp_path),
        recipe=recipe,
    )
    with pytest.raises(error) as refused:
        read_inputs(config, lambda line: None)
    assert str(refused.value) == message


def test_settings_that_contradict_a_crf_are_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        Recipe(crf=True, balance_classes=True)
    assert str(refused.value) == (
        "recipe.balance_classes (True) weights the loss of each tag, but recipe.crf (True) has one loss for all tags "
        "of a sentence: leave one of the two out"
    )
    with pytest.raises(ConfigError) as refused:
        Finetune(
            checkpoint="c", task=("conll2003",), recipe=Recipe(crf=True), cutting=Truncation(label_all_pieces=True)
        )
    assert str(refused.value) == (
        "cutting.label_all_pieces (True) gives a word several tags, but recipe.crf (True) learns which tag follows "
        "which from one tag per word: leave one of the two out"
    )


def test_a_tag_of_later_pieces_needs_labels_for_them() -> None:
    with pytest.raises(ConfigError) as refused:
        Truncation(continuation="own")
    assert str(refused.value) == (
        "cutting.continuation (own) is the tag of later pieces, but cutting.label_all_pieces is False: add "
        "--cutting.label-all-pieces, or leave continuation out"
    )
