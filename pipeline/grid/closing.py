"""Last lines of a fine-tuning job: how to use its models, and where to look at its trials."""

import shlex
from collections.abc import Mapping

from pipeline.config.finetune import Finetune
from pipeline.finetune.problems import Problem
from pipeline.grid.runs import GridRun
from pipeline.grid.testing import choice_columns, columns
from pipeline.reporting import from_here, to_paste
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
    words = ["python", "jobs/predict.py", "--checkpoint", from_here(folder), "--input", "FILE"]
    text, pair = columns(config, task)
    words += ["--text", text] if text else []
    words += ["--pair", pair] if pair else []
    words += ["--words", str(config.words)] if config.words is not None else []
    words += [word for name in choice_columns(config, task) for word in ("--choices", name)]
    return to_paste(shlex.join([*words, "--output", "answers.csv"]))
