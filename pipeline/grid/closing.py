"""The last lines of a fine-tuning: how to use its models, and where to look at its trials."""

import shlex

from pipeline.config.called import as_called
from pipeline.config.finetune import Finetune
from pipeline.tasks.task import Task


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
