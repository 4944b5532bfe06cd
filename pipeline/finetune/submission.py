"""Predictions of GLUE's test splits by the models of its tasks, as the file that gluebenchmark.com takes."""

from collections.abc import Callable, Mapping

from pipeline import storage
from pipeline.config.finetune import Finetune
from pipeline.finetune.problems import Problem
from pipeline.finetune.trials import autocast_for, device_of
from pipeline.tasks import sequences
from pipeline.tasks.glue import TASKS
from pipeline.tasks.known import GLUE
from pipeline.tasks.submission import FILES, Predictions, write_submission
from pipeline.tasks.tables import read_split
from pipeline.train.trial import logits_of
from pipeline.train.tuned import load_tuned

ZIP = "glue-submission.zip"
ANSWERS_FOR = {"ax": "mnli"}
"""The diagnostic set has no training split: a model of another task answers it."""


def submit(config: Finetune, problems: Mapping[str, Problem], models: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Write OUTPUT/glue-submission.zip where all of GLUE's tasks and test files are there; else a line names what is missing. Nothing where no GLUE task was asked for."""
    if config.data is None or not any(name in GLUE for name in models):
        return
    missing = [f"a model of {task}" for task in dict.fromkeys(ANSWERS_FOR.get(one.task, one.task) for one in FILES.values()) if task not in models]
    missing += [file for one in FILES.values() if not storage.exists(storage.join(config.data, file := TASKS[one.task].split(one.split).file))]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        report(f"no GLUE submission file: {', '.join(missing[:5])}{more} missing")
        return
    found = {name: predictions(config, models[ANSWERS_FOR.get(one.task, one.task)], one.task, one.split) for name, one in FILES.items()}
    place = storage.join(config.output, ZIP)
    write_submission(place, found)
    report(f"GLUE submission file: {place}")


def predictions(config: Finetune, model: str, task: str, split: str) -> Predictions:
    """What a model says about a test split."""
    assert config.data is not None
    tuned, device = load_tuned(model), device_of(config)
    texts = read_split(TASKS[task], config.data, split)
    prepared = sequences.prepare(tuned.about.task, texts, tuned.vocabulary, tuned.about.cutting)
    logits = logits_of(tuned.module.to(device), prepared.rows, device, autocast_for(config.placement, tuned.model.width, device))
    found = sequences.answers(tuned.about.task, prepared, logits, tuned.about.cutting)
    return Predictions(ids=texts["id"].to_pylist(), values=sequences.chosen(tuned.about.task, found, tuned.about.tuned))
