"""Read the encoder that fine-tuning starts from."""

from collections.abc import Iterable

from pipeline.config.finetune import Finetune
from pipeline.objectives.tasks import TASK_MODULES
from pipeline.reporting import Report
from pipeline.tasks.task import Task
from pipeline.train.initial import POOLER, Initial, missing_heads, random_heads, read_initial


def read_encoder(config: Finetune, checkpoint: str, report: Report) -> Initial:
    """Read the published model `checkpoint`, which may differ from config.checkpoint, and copy it to the output folder.

    Raises CheckpointError if the model cannot be used, and ConfigError or DataError if its vocabulary cannot be used.
    """
    return read_initial(checkpoint, config.vocabulary, config.output, report, setting="checkpoint", used=())


def report_missing_pooler(config: Finetune, initial: Initial, tasks: Iterable[Task], report: Report) -> None:
    """Report that the model's files lack a pooler, if the head of a task uses it."""
    if not any(TASK_MODULES[task.kind].reads_pooler(config.recipe.pooling) for task in tasks):
        return
    if not config.random_weights and (missing := missing_heads(initial, (POOLER,))):
        report(f"checkpoint: {random_heads(missing)}")
