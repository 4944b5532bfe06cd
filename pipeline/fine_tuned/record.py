"""Read the task of a saved model from its task.json, without torch: kind, labels, and columns of the training file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.errors import PipelineError
from pipeline.files import storage
from pipeline.saved.checkpoints import TASK
from pipeline.tasks.task import Task

COLUMNS = "columns"
"""Key in the lineage of a model that was trained on a table: the names of the table's columns of texts."""


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """Columns of a table's texts; None or empty if the task has no such column, or if the column is not known."""

    text: str | None = None
    pair: str | None = None
    choices: tuple[str, ...] = ()

    def recorded(self) -> dict[str, Any]:
        """Return the columns as the lineage of a model holds them."""
        return asdict(self)

    @classmethod
    def of(cls, lineage: Mapping[str, Any]) -> "TextColumns":
        """Return the columns in a model's lineage; none for models that do not record them."""
        known = lineage.get(COLUMNS) or {}
        return cls(text=known.get("text"), pair=known.get("pair"), choices=tuple(known.get("choices") or ()))


def task_of(content: Mapping[str, Any]) -> Task:
    """Return the task in the content of task.json. Raises KeyError, TypeError or AttributeError for other contents."""
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content["task"].items()
    }
    return Task(**settings)


def saved_task_at(folder: str) -> tuple[Task, TextColumns] | None:
    """Return the task of a model's folder and its columns, without loading the model.

    None if the folder has no task.json that can be used; loading the model then says why.
    """
    try:
        content = storage.read_object(storage.join(folder, TASK))
        return None if content is None else (task_of(content), TextColumns.of(content["lineage"]))
    except (PipelineError, OSError, KeyError, TypeError, AttributeError):
        return None
