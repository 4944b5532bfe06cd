"""A fine-tuned model: task, thresholds and module of a saved model, of this package or of others."""

from pipeline.errors import CheckpointError
from pipeline.files import storage
from pipeline.fine_tuned.published_tuned import of_published
from pipeline.fine_tuned.tuned import TunedModel, of_record
from pipeline.saved.checkpoints import TASK
from pipeline.saved.files import NoModel
from pipeline.saved.model import SavedModel, errors_of, open_saved
from pipeline.saved.task_heads import is_task_head


def tuned_of(saved: SavedModel) -> TunedModel:
    """Load a saved model with its task.

    A model without task.json has the task that its config names. Raises CheckpointError if the model has no task, or if
    its files do not fit each other.
    """
    if saved.has_record:
        if not saved.has_manifest:
            raise CheckpointError(f"{saved.location} is damaged: {storage.MANIFEST} is missing")
        return of_record(saved)
    if not is_published(saved):
        raise _no_task(saved.location)
    return of_published(saved)


def is_published(saved: SavedModel) -> bool:
    """Return whether others published a model.

    A model with our manifest, but without task.json, counts only if its config names a head for a task.
    """
    return not saved.has_record and (not saved.has_manifest or is_task_head(saved.head))


def open_tuned(location: str, setting: str = "checkpoint") -> TunedModel:
    """Open and load a fine-tuned model. Messages name the setting that holds the location."""
    with errors_of(setting):
        try:
            saved = open_saved(location)
        except NoModel as error:
            raise _no_task(location) from error
        return tuned_of(saved)


def _no_task(location: str) -> CheckpointError:
    """Return the error for a model without a task."""
    return CheckpointError(
        f"{location} has no {TASK}: give a folder that fine-tuning wrote, such as output/finetune/NAME/model"
    )
