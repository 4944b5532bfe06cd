"""Last lines of a fine-tuning job: how to use its models, and where to look at its trials."""

import shlex
from collections.abc import Mapping

from pipeline.config.called import as_called
from pipeline.config.finetune import Finetune
from pipeline.finetune.problems import Problem
from pipeline.grid.runs import GridRun
from pipeline.tasks.task import Task
from pipeline.train.summary import to_open


def closing_lines(
    config: Finetune, problems: Mapping[str, Problem], models: Mapping[str, str], parent: GridRun
) -> list[str]:
    """Return lines that say where the models are, how to use them, and where to look at the trials.

    `models`: task -> folder of its best model.
    """
    lines = []
    for name, folder in models.items():
        lines.append(f"model of {name}, the best of its seeds on dev: {folder}")
        lines.append(f"    to use it: {use_line(config, problems[name].task, folder)}")
    if config.search.folds:
        lines.append(
            "folds measure settings and keep no model: to train a model, run the same command with the best settings "
            "and without --search.folds"
        )
    return [*lines, f"trials in MLflow: {to_open(parent.uri, parent.run_id, parent.experiment_id)}"]


def use_line(config: Finetune, task: Task, folder: str) -> str:
    """Return the command that answers a file with a model."""
    words = ["python", "jobs/predict.py", "--checkpoint", folder, "--input", "FILE"]
    text, pair = columns(config, task)
    words += ["--text", text] if text else []
    words += ["--pair", pair] if pair else []
    words += ["--words", str(config.words)] if config.words is not None else []
    words += [word for name in choice_columns(config, task) for word in ("--choices", name)]
    return as_called(shlex.join([*words, "--output", "answers.csv"]))


def choice_columns(config: Finetune, task: Task) -> tuple[str, ...]:
    """Return the names of the columns of choices that `use_line` gives; empty for other kinds of task."""
    return config.choices if config.train is not None or not task.splits else task.splits[0].choices


def columns(config: Finetune, task: Task) -> tuple[str | None, str | None]:
    """Return the names of the text and pair columns that `use_line` gives; None for a name that it leaves out.

    A pair column is left out if the task has none. For spans and tags, a text column with the default name is left out
    too. If a name is not known, "COLUMN" stands for it.
    """
    if config.train is not None:
        default = Finetune.text
        return None if task.kind in ("spans", "tags") and config.text == default else config.text, config.pair
    if task.kind in ("spans", "tags"):
        return None, None
    split = next((split for split in task.splits if split.name.startswith("test")), None)
    if split is None:
        return "COLUMN", "COLUMN" if task.paired else None
    return split.first, split.second
