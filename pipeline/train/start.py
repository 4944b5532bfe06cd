"""Start or continue a run: read what its folder holds, and refuse settings that do not fit that."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pipeline import storage
from pipeline.config.jobs import Pretrain
from pipeline.corpus.embeddings import counted_embeddings
from pipeline.corpus.stream import StreamSettings
from pipeline.errors import CheckpointError, ConfigError
from pipeline.reporting import Report
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train import checkpoint, run
from pipeline.train.initial import Initial


@dataclass(frozen=True, kw_only=True)
class Start:
    """State of a run's folder when the run starts or continues."""

    folder: str
    identity: dict[str, Any]
    """Settings, versions and fingerprints that every start of the run shares."""
    recorded: dict[str, Any] | None
    """Contents of run.json; None for a new run."""
    summary: dict[str, Any] | None
    """The summary if the run has all requested steps."""
    continuing: bool
    """The run has a sound checkpoint."""
    done: int
    """Steps of the newest sound checkpoint."""
    mlflow_run_id: str | None
    """The MLflow run to continue; None: a new one."""
    continues: str | None = None
    """After a rollback: the MLflow run before it, and the step, as a tag says them."""


def read_start(config: Pretrain, stream: StreamSettings, initial: Initial | None) -> Start:
    """Return what the run's folder holds, after saving the vocabulary in it.

    Raises ConfigError for settings that differ from the run's, CheckpointError where its files are damaged.
    """
    folder = run.run_folder(config)
    identity = run.identity(config, stream.corpus, stream.vocabulary, initial.fingerprint if initial else None)
    recorded = run.read_run(folder)
    if recorded is not None:
        run.refuse_differences(config, recorded["identity"], identity)
    run.save_run_vocabulary(folder, stream.vocabulary, config.model.maximum_positions)
    summary = run.read_summary(folder)
    finished = run.is_finished(summary, config)
    newest = None if finished else _newest_checkpoint(config, folder)
    done = checkpoint.read_state(newest).step if newest else 0
    if done > config.steps:
        raise ConfigError(
            f"steps ({config.steps}) is less than the {done} that run {config.name} has done: "
            f"ask for {done} or more, or choose another --name"
        )
    return Start(
        folder=folder,
        identity=identity,
        recorded=recorded,
        summary=summary if finished else None,
        continuing=newest is not None,
        done=done,
        mlflow_run_id=recorded["mlflow_run_id"] if recorded else None,
    )


def _newest_checkpoint(config: Pretrain, folder: str) -> str | None:
    """Return the newest sound checkpoint; a damaged run is refused before anything starts."""
    try:
        return checkpoint.newest_sound(folder, lambda message: None)
    except OSError as error:
        raise CheckpointError(
            f"the checkpoints of run {config.name} cannot be read: {storage.first_line(error)}; "
            "the same command tries again"
        ) from error


def roll_back(config: Pretrain, start: Start, report: Report) -> Start:
    """Go back to where the decay began if more steps than before are requested; else return the start unchanged."""
    if start.recorded is None or (back := run.rollback_step(config, start.recorded, start.done)) is None:
        return start
    checkpoint.roll_back_to(start.folder, back)
    report(
        f"run {config.name}: going back from step {start.done} to {back}, where it began to decay; "
        "tracked as another MLflow run from there"
    )
    return replace(start, mlflow_run_id=None, continues=f"{start.mlflow_run_id} from step {back}")


def word_embeddings(config: Pretrain, stream: StreamSettings, start: Start, report: Report) -> str | None:
    """Return the folder of the word embeddings that the run starts from; None for random ones, or to continue."""
    if config.word_embeddings != "cooccurrence" or start.continuing:
        return None
    tokenizer = CachedTokenizer(stream.vocabulary, stream.table_chunks)
    return counted_embeddings(stream.corpus, tokenizer, config.model.width, config.output, report)


@contextmanager
def os_errors_as_checkpoint_error(config: Pretrain) -> Generator[None]:
    """Raise CheckpointError where the driver cannot read or write a file during a run."""
    try:
        yield
    except ConnectionError:  # of Ray
        raise
    except OSError as error:
        raise CheckpointError(
            f"a file of run {config.name} below {config.output} cannot be read or written "
            f"({storage.first_line(error)}); the same command continues from the newest checkpoint"
        ) from error
