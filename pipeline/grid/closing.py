"""The last lines of a fine-tuning: how to use its models, and where to look at its trials."""

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
    """Return where the models are, how to use them, and how to look at the trials."""
    lines = []
    for name, folder in models.items():
        lines.append(f"model of {name}, the best of its seeds on dev: {folder}")
        lines.append(f"    to use it: {use_line(config, problems[name].task, folder)}")
    if config.search.folds:
        lines.append(
            "folds measure settings and keep no model: the same command without --search.folds, with the settings "
            "that are best, trains one"
        )
    return [*lines, f"trials in MLflow: {to_open(parent.uri, parent.run_id, parent.experiment_id)}"]


def use_line(config: Finetune, task: Task, folder: str) -> str:
    """Return the command that predicts a file with a model."""
    words = ["python", "jobs/predict.py", "--checkpoint", folder, "--input", "FILE"]
    text, pair = columns(config, task)
    words += ["--text", text] if text else []
    words += ["--pair", pair] if pair else []
    return as_called(shlex.join([*words, "--output", "answers.csv"]))


def columns(config: Finetune, task: Task) -> tuple[str | None, str | None]:
    """Return the text and pair columns that the command needs; None if it finds them by default."""
    if config.train is not None:
        default = Finetune.text
        return None if task.kind in ("spans", "tags") and config.text == default else config.text, config.pair
    if task.kind in ("spans", "tags"):
        return None, None
    split = next((split for split in task.splits if split.name.startswith("test")), None)
    if split is None:
        return "COLUMN", "COLUMN" if task.paired else None
    return split.first, split.second
