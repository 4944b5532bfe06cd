"""Objects that the driver of a run sends to its workers."""

from dataclasses import dataclass

from ray.actor import ActorHandle

from pipeline.config.jobs import Pretrain
from pipeline.corpus.stream import StreamSettings
from pipeline.evaluation.blimp import Blimp
from pipeline.objectives.distilled_vectors import VectorTeacher
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
    teacher: Initial | None = None
    """The teacher of a distillation; None for objectives without a teacher."""
    vector_teacher: VectorTeacher | None = None
    """The teacher of text vectors; None for other objectives."""
    blimp: Blimp | None
    """The minimal pairs of evaluation.blimp; None if it is not set."""
    tracker: ActorHandle
    graphs_automatic: bool = False
    """Whether placement.graphs was auto: then run.json says whether the run records CUDA graphs."""
