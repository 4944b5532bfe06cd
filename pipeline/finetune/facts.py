"""Facts about a training. They are stored with the fine-tuned model, for its model card and its lineage."""

from typing import Any

from pipeline.config.finetune import Finetune
from pipeline.fine_tuned.record import COLUMNS, TextColumns
from pipeline.finetune.kinds import TRAINING
from pipeline.finetune.problems import Problem
from pipeline.finetune.trial import TrialResult
from pipeline.tasks import known
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.task import Task


def training_facts(config: Finetune, problem: Problem, seed: int, result: TrialResult) -> dict[str, Any]:
    """Return facts about a training as JSON values.

    - the encoder's checkpoint
    - scores, baselines and number of rows per split; for a problem with only training rows, of the split "train"
    - training settings
    - the columns of texts, if the task was read from a table
    - `teacher_facts`, if there is a teacher
    """
    splits = problem.splits or {"train": problem.train}
    kind = KINDS[problem.task.kind]
    teacher = {} if problem.teacher is None else {"teacher": teacher_facts(config, problem)}
    columns = text_columns(config, problem.task)
    of_table = {} if columns == TextColumns() else {COLUMNS: columns.recorded()}
    return (
        teacher
        | of_table
        | {
            "checkpoint": config.checkpoint,
            "scores": result.scores,
            "baselines": {name: kind.baseline(problem.task, problem.train, split) for name, split in splits.items()},
            "rows": {name: len(split.items) for name, split in splits.items()},
            "training": {
                "seed": seed,
                "rows": result.rows,
                "rows per step": config.recipe.rows_per_step,
                "learning rate": config.optimizer.learning_rate,
                "steps": result.steps,
                "tokens": result.tokens,
            }
            | TRAINING[problem.task.kind].facts(config),
        }
    )


def text_columns(config: Finetune, task: Task) -> TextColumns:
    """Return the columns of texts of the training file, without a text column of the default name."""
    if config.train is not None:
        text = None if config.text == Finetune.text else config.text
        return TextColumns(text=text, pair=config.pair, choices=config.choices)
    split = known.TASKS[task.name].split("train") if task.name in known.TASKS else None
    if split is None or not split.first:
        return TextColumns()
    return TextColumns(text=split.first, pair=split.second, choices=split.choices)


def teacher_facts(config: Finetune, problem: Problem) -> dict[str, Any]:
    """Return facts about a problem's teacher, the teacher's loss term, and the unlabelled rows, as JSON values."""
    teaching = TRAINING[problem.task.kind].teaching
    assert problem.teacher is not None and teaching is not None
    unlabelled = problem.unlabelled
    teacher = {
        "checkpoint": problem.teacher.location,
        "name": problem.teacher.name,
        "fingerprint": problem.teacher.fingerprint,
    }
    if not teaching.has_term:
        return teacher
    return teacher | {
        "temperature": config.recipe.temperature,
        "weight": config.recipe.teacher_weight,
        "unlabelled rows": 0 if unlabelled is None else unlabelled.rows.num_rows,
    }
