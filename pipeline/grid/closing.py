"""The last lines of a fine-tuning: how its models are used, and where its trials can be looked at."""

import shlex

from pipeline.config.called import as_called
from pipeline.config.finetune import Finetune
from pipeline.tasks.task import Task


def use_line(config: Finetune, task: Task, folder: str) -> str:
    """The command that answers a file with a model."""
    words = ["python", "jobs/predict.py", "--checkpoint", folder, "--input", "FILE"]
    text, pair = columns(config, task)
    words += ["--text", text] if text else []
    words += ["--pair", pair] if pair else []
    return as_called(shlex.join([*words, "--output", "answers.csv"]))


def columns(config: Finetune, task: Task) -> tuple[str | None, str | None]:
    """Columns of the text and of its second text as the command needs them; None where it finds them by itself."""
    if config.train is not None:
        default = Finetune.text
        return None if task.kind in ("spans", "tags") and config.text == default else config.text, config.pair
    if task.kind in ("spans", "tags"):
        return None, None
    split = next((split for split in task.splits if split.name.startswith("test")), None)
    if split is None:
        return "COLUMN", "COLUMN" if task.paired else None
    return split.first, split.second
