"""A fine-tuned model in memory: its description, its module and its vocabulary."""

from dataclasses import dataclass
from typing import Any

from pipeline.config.adapters import Bottleneck
from pipeline.config.cutting import Truncation
from pipeline.config.model import Model
from pipeline.objectives.tasks import TaskObjective
from pipeline.tasks.prepared import Thresholds
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class About:
    """Description of a fine-tuned model, without its weights."""

    task: Task
    cutting: Truncation
    """Truncation: length and stride, and the pooling of a text's passages."""
    pooling: str
    """Value of recipe.pooling: cls, mean or attention; for kind similarity, of similarity.pooling: mean or cls."""
    thresholds: Thresholds
    """Values tuned on the development split, such as thresholds."""
    lineage: dict[str, Any]
    """Origin of the model: checkpoint, settings and scores."""
    crf: bool = False
    """Whether the model tags whole sentences by a chain; its scores are among the weights."""


@dataclass(frozen=True, kw_only=True)
class TunedModel:
    """A fine-tuned model, in evaluation mode and float32 on the CPU."""

    about: About
    model: Model
    vocabulary: Vocabulary
    module: TaskObjective
    bottleneck: Bottleneck | None = None
    """Settings of the module's bottleneck adapter; None if it has none."""
