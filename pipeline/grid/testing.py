"""At the end of a fine-tuning, score and predict a test file with the model that the development split selected."""

from collections.abc import Callable

from pipeline import storage
from pipeline.config.finetune import Finetune
from pipeline.config.predict import Predict, Score
from pipeline.errors import PipelineError
from pipeline.grid import runs
from pipeline.grid.closing import columns
from pipeline.predict.job import predict
from pipeline.predict.score import of_file, score
from pipeline.tasks.task import Task

ANSWERS = "test-answers.csv"
Report = Callable[[str], None]


def score_settings(config: Finetune, checkpoint: str) -> Score:
    """Return the settings that score the test file with a model."""
    return Score(
        checkpoint=checkpoint,
        input=config.test,
        text=config.text,
        pair=config.pair,
        label=config.label,
        on_bad_rows=config.on_bad_rows,
        placement=config.placement,
    )


def require_readable(config: Finetune, task: Task) -> None:
    """Raise DataError, before any training, for a test file that cannot be read or has other labels."""
    if config.test is not None:
        of_file(score_settings(config, ""), task)


def score_and_answer(config: Finetune, task: Task, model: str, parent: runs.GridRun, report: Report) -> None:
    """Score the test file if there is one, log its scores to MLflow, and write the predictions next to the model."""
    if config.test is None:
        return
    report(f"test, by the best model on dev ({model}):")
    found = score(score_settings(config, model), report)
    runs.log_scores(parent, task.name, "test", found)
    target = storage.join(model.rsplit("/", 1)[0], ANSWERS)
    text, pair = columns(config, task)
    try:
        predict(
            Predict(
                checkpoint=model,
                input=config.test,
                output=target,
                text=text,
                pair=pair,
                replace=True,
                gpus=None if config.trials.gpus is None else min(1.0, config.trials.gpus),
                actors=config.trials.at_once if config.placement.autoscaled else None,
                placement=config.placement,
            ),
            report,
        )
    except PipelineError as error:  # the scores are there
        report(f"the test file is not answered: {error}")
