"""Check the test file before training, and make the settings with which the best model scores and answers the file."""

from dataclasses import replace

from pipeline.config.finetune import Finetune
from pipeline.config.predict import Predict, Score
from pipeline.config.similarity import Similarity
from pipeline.files import storage
from pipeline.predict.score import of_file
from pipeline.tasks.kinds import KINDS, saved_task
from pipeline.tasks.scored_pairs import pair_columns
from pipeline.tasks.task import Task

ANSWERS = "test-answers.csv"


def choice_columns(config: Finetune, task: Task) -> tuple[str, ...]:
    """Return the names of the columns of choices that `use_line` gives; empty for other kinds of task."""
    return config.choices if config.train is not None or not task.splits else task.splits[0].choices


def columns(config: Finetune, task: Task) -> tuple[str | None, str | None]:
    """Return the names of the text and pair columns that `use_line` gives; None for a name that it leaves out.

    A pair column is left out if the task has none. A text column with the default name is left out too, if the file may
    have a format of its own. If a name is not known, "COLUMN" stands for it.
    """
    if config.train is not None:
        default = Finetune.text
        return None if KINDS[
            task.kind
        ].labelled.own_file != "table" and config.text == default else config.text, config.pair
    if KINDS[task.kind].labelled.own_file != "table":
        return None, None
    split = next((split for split in task.splits if split.name.startswith("test")), None)
    if split is None:
        return "COLUMN", "COLUMN" if task.paired else None
    return split.first, split.second


def _with_test_columns(config: Finetune, task: Task) -> Finetune:
    """Return the settings with the columns of the test file.

    They are those of the training file, except for tasks whose model is saved as one of kind similarity: their test
    file has pairs with a score.
    """
    if KINDS[task.kind].saved_as is None:
        return config
    found = pair_columns(str(config.test), None, None, ())
    columns = {"text": found.first, "pair": found.second, "label": (str(found.label),), "negative": ()}
    return replace(config, similarity=Similarity(), **columns)


def score_settings(config: Finetune, task: Task, checkpoint: str) -> Score:
    """Return the settings that score the test file with a model."""
    config = _with_test_columns(config, task)
    return Score(
        checkpoint=checkpoint,
        input=config.test,
        text=config.text,
        pair=config.pair,
        label=config.label,
        choices=config.choices,
        words=config.words,
        intent=config.intent,
        on_bad_rows=config.on_bad_rows,
        placement=config.placement,
    )


def require_readable(config: Finetune, task: Task) -> None:
    """Raise DataError, before any training, if the test file cannot be read or has labels that the task lacks."""
    if config.test is not None:
        of_file(score_settings(config, task, ""), saved_task(task))


def predict_settings(config: Finetune, task: Task, model: str) -> Predict:
    """Return the settings that answer the test file with a model; answers are written next to the model's folder."""
    text, pair = columns(_with_test_columns(config, task), task)
    return Predict(
        checkpoint=model,
        input=str(config.test),
        output=storage.join(model.rsplit("/", 1)[0], ANSWERS),
        text=text,
        pair=pair,
        choices=choice_columns(config, task),
        words=config.words,
        replace=True,
        gpus=None if config.trials.gpus is None else min(1.0, config.trials.gpus),
        actors=config.trials.at_once if config.placement.autoscaled else None,
        placement=config.placement,
    )
