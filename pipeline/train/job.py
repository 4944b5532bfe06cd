"""Objects that the driver of a run sends to its workers."""

from dataclasses import dataclass

from ray.actor import ActorHandle

from pipeline.config.jobs import Pretrain
from pipeline.corpus.stream import StreamSettings
from pipeline.evaluation.blimp import Blimp
from pipeline.objectives.pretraining import Teacher
from pipeline.train.initial import Initial


@dataclass(frozen=True, kw_only=True)
class Job:
    """Inputs of every worker, sent by the driver."""

    config: Pretrain
    folder: str
    """Folder of the run."""
    stream: StreamSettings
    initial: Initial | None
    """Published model that the run starts from; None: random weights."""
    words: str | None
    """Folder of initial word embeddings; None if they are random or the run continues from a checkpoint."""
    teacher: Teacher | None = None
    """The model that the objective learns from; None for objectives without a teacher."""
    blimp: Blimp | None
    """The minimal pairs of evaluation.blimp; None if it is not set."""
    tracker: ActorHandle
    attempt: int = 0
    """Number of this driver, for a run in an object store (files/lease.py); else 0."""
    graphs_automatic: bool = False
    """Whether placement.graphs was auto: then run.json says whether the run records CUDA graphs."""
