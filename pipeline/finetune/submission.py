"""Predict GLUE's test splits with the fine-tuned models, and write the submission file for gluebenchmark.com."""

from collections.abc import Callable, Collection, Mapping

from pipeline.config.finetune import Finetune
from pipeline.errors import listed
from pipeline.files import storage
from pipeline.fine_tuned.model import open_tuned
from pipeline.finetune.problems import Problem
from pipeline.finetune.submission_zip import FILES, Predictions, write_submission
from pipeline.objectives.logits import compute_logits
from pipeline.on_ray.answering import AnswerProgress
from pipeline.reporting import Report
from pipeline.tables.content import existing_file
from pipeline.tasks import sequences
from pipeline.tasks.glue import TASKS
from pipeline.tasks.known import GLUE
from pipeline.tasks.tables import read_split
from pipeline.train.hardware import answer_precision, autocast_of, device_of

ZIP = "glue-submission.zip"
ANSWERS_FOR = {"ax": "mnli"}
"""Task -> task whose model answers the test set. The diagnostic set, ax, has no training split, so no own model."""


def submit(config: Finetune, problems: Mapping[str, Problem], models: Mapping[str, str], report: Report) -> None:
    """Write OUTPUT/glue-submission.zip if all models and test files of GLUE exist; else report the missing ones.

    `models` maps a task to the folder of its model. A no-op if `models` has no GLUE task, or if config.data is None.
    """
    if config.data is None or not any(name in GLUE for name in models):
        return
    if missing := _missing_of(config.data, models):
        report(f"no GLUE submission file, because these are missing: {listed(missing, 5)}")
        return
    predictions = {}
    for name, file in FILES.items():
        report(f"GLUE submission file: {name}, {file.rows:,} rows")
        progress = AnswerProgress(report, file.rows, name=name)
        predictions[name] = _predictions(config, models[_model_for(file.task)], file.task, file.split, progress.add)
    location = storage.join(config.output, ZIP)
    write_submission(location, predictions)
    report(f"GLUE submission file: {location}")


def _model_for(task: str) -> str:
    """Return the task whose model answers the test set of `task`."""
    return ANSWERS_FOR.get(task, task)


def _missing_of(data: str, tasks: Collection[str]) -> list[str]:
    """Return the missing models and test files of GLUE.

    `data` is the folder of the test files. `tasks` are the tasks that have a model.
    """
    missing = [
        f"a model of {task}"
        for task in dict.fromkeys(_model_for(submitted.task) for submitted in FILES.values())
        if task not in tasks
    ]
    return missing + [
        file
        for submitted in FILES.values()
        if not existing_file(storage.join(data, file := TASKS[submitted.task].split(submitted.split).file))
    ]


def rows_to_answer(data: str, tasks: Collection[str]) -> dict[str, int]:
    """Return task -> number of test rows that its model answers; {} if a model or a test file is missing."""
    rows: dict[str, int] = {}
    if not _missing_of(data, tasks):
        for file in FILES.values():
            rows[_model_for(file.task)] = rows.get(_model_for(file.task), 0) + file.rows
    return rows


def _predictions(config: Finetune, model: str, task: str, split: str, after: Callable[[int], None]) -> Predictions:
    """Return the predictions of a model (a folder) on a test split. `after` is called with numbers of new answers."""
    assert config.data is not None
    tuned, device = open_tuned(model), device_of(config.placement, config.trials.gpus)
    texts = read_split(TASKS[task], config.data, split)
    prepared = sequences.prepare(tuned.about.task, texts, tuned.vocabulary, tuned.about.cutting)
    precision = answer_precision(config.placement, tuned.about.lineage.get("precision"), device)
    logits = compute_logits(tuned.module.to(device), prepared.rows, device, autocast_of(precision, device), after)
    answers = sequences.answers(tuned.about.task, prepared, logits, tuned.about.cutting)
    return Predictions(
        ids=texts["id"].to_pylist(),
        values=sequences.predicted_labels(tuned.about.task, answers, tuned.about.thresholds),
    )
