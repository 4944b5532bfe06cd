"""Whether a model has a task: the record that fine-tuning here writes, or the name of a published head for a task."""

from pipeline.errors import CheckpointError
from pipeline.files import storage
from pipeline.model.families.table import FAMILIES
from pipeline.saved.checkpoints import CONFIG, TASK
from pipeline.saved.files import MOST_CONFIG, json_object
from pipeline.saved.model import head_of

ANSWERS = ("classification", "tags", "spans", "choices")
"""Keys of Family.architectures whose heads answer a task."""


def has_task(location: str) -> bool:
    """Return whether the files at a location name a task, without opening the model.

    Raises CheckpointError if config.json is not a JSON object.
    """
    if storage.exists(storage.join(location, TASK)):
        return True
    path = storage.join(location, CONFIG)
    try:
        return storage.exists(path) and is_task_head(head_of(json_object(storage.read_at_most(path, MOST_CONFIG))))
    except ValueError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {storage.first_line(error)}") from error


def is_task_head(head: str | None) -> bool:
    """Return whether `head` is the name of a published class that answers a task."""
    return head in task_heads()


def task_heads() -> list[str]:
    """Return the names of the published classes that answer a task, of all families."""
    return [family.architectures[use] for family in FAMILIES.values() for use in ANSWERS]
