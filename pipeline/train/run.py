"""The folder of a run: its name, what makes it the run it is, and its summary.

OUTPUT/runs/NAME/
    vocabulary/         that of the run
    run.json            identity, steps and MLflow run
    checkpoints/        see checkpoint.py
    positions/          where the stream stood at each checkpoint
    reservation.json    under which name the last elastic driver asked for nodes
    export/             the published format
    summary.json        written last: the run is finished
"""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline import storage
from pipeline.config.flat import flatten, unflatten
from pipeline.config.jobs import Pretrain
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.local_files import scratch_folder
from pipeline.text import sentences
from pipeline.text.vocabulary import Vocabulary, save_vocabulary
from pipeline.train.naming import IDENTITY
from pipeline.train.schedule import decay_start, grows

if TYPE_CHECKING:  # imports Ray, which a finished run's reader does not need
    from pipeline.corpus.prepare import Corpus

VERSIONED = (
    "numpy",
    "sentencex",
    "tokenizers",
)  # whose outputs may change from one to the next, and the rows with them
SUMMARY, RUN, VOCABULARY = "summary.json", "run.json", "vocabulary"
RECORDED = ("identity", "steps", "mlflow_run_id", "corpus")
MOST_NAMED = 4


def run_folder(config: Pretrain) -> str:
    """Where a named run lies."""
    return storage.join(storage.absolute(config.output), "runs", str(config.name))


def identity(
    config: Pretrain, corpus: "Corpus", vocabulary: Vocabulary, init_fingerprint: str | None = None
) -> dict[str, Any]:
    """Dotted name -> value of what must match for a run to be continued. `steps` is among them where the schedule ends with it."""
    settings = {key: value for key, value in flatten(config).items() if key.split(".")[0] in IDENTITY}
    if not grows(config):
        settings["steps"] = config.steps
    initial = {"init.fingerprint": init_fingerprint} if init_fingerprint else {}
    return (
        settings
        | versions()
        | initial
        | {"corpus.fingerprint": corpus.fingerprint, "vocabulary.fingerprint": vocabulary.fingerprint}
    )


def versions() -> dict[str, Any]:
    """Dotted name -> version of what makes rows of text."""
    libraries = {f"version.{name}": importlib.metadata.version(name) for name in VERSIONED}
    return libraries | {"version.sentences": sentences.VERSION}


def refuse_other_versions(folder: str, recorded: dict[str, Any]) -> None:
    """Raise DataError where the rows of a run, by its recorded identity, came from other versions than those here."""
    for name, value in versions().items():
        before = recorded.get(name)
        if before != value:
            raise DataError(
                f"{folder} was trained with {name} {before!r} and here it is {value!r}, which may give other rows: "
                "look at it where it was trained"
            )


def refuse_differences(config: Pretrain, recorded: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise ConfigError naming what differs between the recorded identity and the wanted one."""
    differing = [key for key in sorted(recorded | wanted) if recorded.get(key) != wanted.get(key)]
    if not differing:
        return
    named = ", ".join(
        f"{key} {recorded.get(key)!r} there and {wanted.get(key)!r} here" for key in differing[:MOST_NAMED]
    )
    more = f" and {len(differing) - MOST_NAMED} more" if len(differing) > MOST_NAMED else ""
    hint = (
        " (steps may grow under schedule:constant-rate and schedule:warmup-stable-decay only, in one phase: other rates and phases depend on the number of steps)"
        if "steps" in differing
        else ""
    )
    raise ConfigError(
        f"run {config.name} was started with other settings: {named}{more}{hint}; choose another --name, or the settings that it has"
    )


def rollback_step(config: Pretrain, recorded: dict[str, Any], done: int) -> int | None:
    """The step that a run of `done` steps goes back to: where its decay began, when more steps are asked of it now; None where it goes on.

    Raises ConfigError where fewer steps are asked of a run that was to decay later.
    """
    start = decay_start(replace(config, steps=recorded["steps"]))
    if start is None or config.steps == recorded["steps"]:
        return None
    if config.steps < recorded["steps"]:
        raise ConfigError(
            f"steps ({config.steps}) is less than the {recorded['steps']} asked of run {config.name} before, which may have passed the start of a decay: "
            "ask for more, or choose another --name"
        )
    return start if done >= start else None


def save_run_vocabulary(folder: str, vocabulary: Vocabulary, maximum_positions: int) -> None:
    """Put the vocabulary into the run's folder, where it is needed before there is a checkpoint; done once."""
    target = storage.join(folder, VOCABULARY)
    if storage.damage(target) is None:
        return
    with scratch_folder("vocabulary") as temporary:
        save_vocabulary(vocabulary, temporary, maximum_positions)
        storage.publish(temporary, target, {"fingerprint": vocabulary.fingerprint})


def read_run(folder: str) -> dict[str, Any] | None:
    """What run.json holds; None for a run that has none yet. Raises CheckpointError when it is damaged."""
    return read(folder, RUN, RECORDED, "restore it, or start under another --name")


def write_run(folder: str, wanted: dict[str, Any], steps: int, run_id: str, corpus_folder: str) -> None:
    """Record a run's identity, the steps asked for, its MLflow run and where its corpus lies."""
    storage.write_json(storage.join(folder, RUN), record(wanted, steps, run_id, corpus_folder))


def record(wanted: dict[str, Any], steps: int, run_id: str, corpus_folder: str) -> dict[str, Any]:
    """What run.json holds."""
    return {"identity": wanted, "steps": steps, "mlflow_run_id": run_id, "corpus": corpus_folder}


def settings_of(recorded: dict[str, Any]) -> Pretrain:
    """What run.json says of the settings; those that may differ from one command to the next are the defaults."""
    return unflatten(Pretrain, flatten(Pretrain()) | recorded["identity"] | {"steps": recorded["steps"]})


def read_summary(folder: str) -> dict[str, Any] | None:
    """The summary of a finished run; None while it is not finished. Raises CheckpointError when it is damaged."""
    return read(folder, SUMMARY, ("steps",), "delete it, and the command that trained the run writes it again")


def read(folder: str, name: str, wanted: Sequence[str], remedy: str) -> dict[str, Any] | None:
    """A JSON object of a run's folder with these keys; None where there is no such file."""
    location = storage.join(folder, name)
    try:
        value = storage.read_json(location)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError as error:
        raise CheckpointError(f"{location} is a folder, and a file is needed: {remedy}") from error
    except ValueError as error:
        raise CheckpointError(f"{location} is damaged ({storage.first_line(error)}): {remedy}") from error
    if lacking := list(wanted) if not isinstance(value, dict) else [key for key in wanted if key not in value]:
        raise CheckpointError(f"{location} is damaged (it lacks {', '.join(lacking)}): {remedy}")
    return value


def is_finished(summary: dict[str, Any] | None, config: Pretrain) -> bool:
    """Whether a run reached the steps asked for."""
    return summary is not None and summary["steps"] >= config.steps
