"""Start or continue a run: read the run's folder, and refuse settings that contradict it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config.jobs import Pretrain
from pipeline.corpus.embeddings import counted_embeddings
from pipeline.corpus.stream import StreamSettings
from pipeline.errors import CheckpointError, ConfigError
from pipeline.files import storage
from pipeline.objectives.pretraining import Teacher
from pipeline.reporting import Report
from pipeline.saved import checkpoints, run
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train import checkpoint, run_identity
from pipeline.train.automatic import GRAPHS
from pipeline.train.initial import Initial


@dataclass(frozen=True, kw_only=True)
class Start:
    """State of a run's folder when the run starts or continues."""

    folder: str
    identity: dict[str, Any]
    """Settings, versions and fingerprints that must be the same at every start of the run."""
    recorded: dict[str, Any] | None
    """Contents of run.json; None for a new run."""
    summary: dict[str, Any] | None
    """The summary; None if the run has not done all requested steps."""
    continuing: bool
    """Whether training continues from an intact checkpoint."""
    done: int
    """Number of steps done at the checkpoint from which training continues; 0 if `continuing` is False."""
    mlflow_run_id: str | None
    """The MLflow run to continue; None: create a new one."""
    continues: str | None = None
    """After a rollback, the value of the MLflow tag `continues`: the earlier MLflow run's id and the step."""


def read_start(
    config: Pretrain,
    stream: StreamSettings,
    initial: Initial | None,
    teacher: Teacher | None = None,
) -> Start:
    """Read the run's folder, and save the vocabulary in it.

    Raises ConfigError if settings differ from those of the run, and CheckpointError if the run's files are damaged.
    """
    folder = run.run_folder(config)
    models = {name: model.fingerprint for name, model in (("init", initial), ("teacher", teacher)) if model}
    identity = run_identity.identity(config, stream.corpus, stream.vocabulary, models)
    recorded = run.read_run(folder)
    if recorded is not None:
        # Graphs stand in run.json so that the run keeps them, and may be set off all the same.
        compared = {name: value for name, value in recorded["identity"].items() if name != GRAPHS}
        run_identity.refuse_differences(config, compared, identity)
    run_identity.save_run_vocabulary(folder, stream.vocabulary, config.model.maximum_positions)
    summary = run.read_summary(folder)
    finished = run.is_finished(summary, config)
    newest = None if finished else _newest_checkpoint(config, folder)
    done = checkpoint.read_state(newest).step if newest else 0
    if done > config.steps:
        raise ConfigError(
            f"steps ({config.steps}) must be at least {done}, the steps that run {config.name} has done: "
            "set more steps, or choose another --name"
        )
    graphs = {GRAPHS: "on"} if config.placement.graphs == "on" else {}
    return Start(
        folder=folder,
        identity=identity | graphs,
        recorded=recorded,
        summary=summary if finished else None,
        continuing=newest is not None,
        done=done,
        mlflow_run_id=recorded["mlflow_run_id"] if recorded else None,
    )


def _newest_checkpoint(config: Pretrain, folder: str) -> str | None:
    """Return the folder of the newest intact checkpoint; None if there is no checkpoint.

    Raises CheckpointError if all checkpoints are damaged, or if storage fails.
    """
    try:
        return checkpoints.newest_sound(folder, lambda message: None)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoints of run {config.name} cannot be read: {storage.first_line(error)}; "
            "run the same command again"
        ) from error


def roll_back(config: Pretrain, start: Start, report: Report) -> Start:
    """Roll a run back to the start of its decay if more steps than before are requested and the decay has begun.

    Return `start`, changed if the run was rolled back.
    """
    if start.recorded is None or (back := run_identity.rollback_step(config, start.recorded, start.done)) is None:
        return start
    checkpoint.roll_back_to(start.folder, back)
    report(
        f"run {config.name}: going back from step {start.done} to {back}, where its learning rate began to decay; "
        "from there the run is tracked as a new MLflow run"
    )
    return replace(start, done=back, mlflow_run_id=None, continues=f"{start.mlflow_run_id} from step {back}")


def word_embeddings(config: Pretrain, stream: StreamSettings, start: Start, report: Report) -> str | None:
    """Return the folder of the run's initial word embeddings; None if they are random or the run continues."""
    if config.word_embeddings != "cooccurrence" or start.continuing:
        return None
    tokenizer = CachedTokenizer(stream.vocabulary, stream.table_chunks)
    return counted_embeddings(stream.corpus, tokenizer, config.model.width, config.output, report)


@contextmanager
def os_errors_as_checkpoint_error(config: Pretrain) -> Generator[None]:
    """Raise CheckpointError if the driver cannot read or write a file of the run inside this context."""
    try:
        yield
    except ConnectionError:  # an error of Ray, not of a file
        raise
    except OSError as error:
        raise CheckpointError(
            f"a file of run {config.name} below {config.output} cannot be read or written "
            f"({storage.first_line(error)}); the same command continues from the newest checkpoint"
        ) from error
