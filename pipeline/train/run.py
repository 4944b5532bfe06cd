"""The folder of a run: its identity, vocabulary, checkpoints and summary.

OUTPUT/runs/NAME/
    vocabulary/         the run's vocabulary
    run.json            identity, steps and MLflow run
    checkpoints/        see checkpoint.py
    positions/          stream position at each checkpoint
    reservation.json    name under which the last elastic driver requested nodes
    export/             the published format
    summary.json        written last, when the run is finished
"""

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pipeline import storage
from pipeline.config.flat import flatten, unflatten
from pipeline.config.jobs import Pretrain
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.local_files import scratch_folder
from pipeline.locations import sqlite_file, sqlite_uri
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.train.naming import ADDED, FINGERPRINTED, identifying_settings, implied_objective
from pipeline.train.schedule import decay_start, grows

if TYPE_CHECKING:  # this import loads Ray, which code that reads finished runs does not need
    from pipeline.corpus.prepared import Corpus

VERSIONED = ("numpy", "sentencex", "tokenizers")
"""Libraries that may give a run different rows in another version."""
SUMMARY, RUN, VOCABULARY = "summary.json", "run.json", "vocabulary"
EVALUATED_ROWS = "evaluation_rows"
"""Entry of summary.json: the maximum number of held-out rows per evaluation. Older summaries lack the entry."""
RECORDED = ("identity", "steps", "mlflow_run_id", "corpus")
"""Keys of run.json."""
LOCATED = ("export", "checkpoint", "mlflow_uri")
"""Keys of summary.json whose values are locations, mostly in the run's output folder."""
MOST_NAMED = 4
"""Maximum differing settings in a message."""


def run_folder(config: Pretrain) -> str:
    """Return the folder of a named run."""
    return storage.join(config.output, "runs", str(config.name))


def identity(
    config: Pretrain, corpus: "Corpus", vocabulary: Vocabulary, models: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return dotted name -> value of all settings, versions and fingerprints that must match to continue a run.

    `models` has the fingerprints of the published models that the run uses, by name: init, teacher. `steps` is left out
    if the schedule allows more steps later.
    """
    settings = identifying_settings(config)
    if not grows(config):
        settings["steps"] = config.steps
    used = {f"{name}.fingerprint": fingerprint for name, fingerprint in models.items()}
    return (
        settings
        | _versions()
        | used
        | {"corpus.fingerprint": corpus.fingerprint, "vocabulary.fingerprint": vocabulary.fingerprint}
    )


def _versions() -> dict[str, Any]:
    """Return dotted name -> version of the libraries that affect rows."""
    from pipeline.text import sentences  # loads sentencex, which a machine for `bench.py train` may not have

    libraries = {f"version.{name}": importlib.metadata.version(name) for name in VERSIONED}
    return libraries | {"version.sentences": sentences.VERSION}


def refuse_other_versions(folder: str, recorded: dict[str, Any]) -> None:
    """Raise DataError if the versions in the recorded identity of a run differ from the present versions."""
    for name, value in _versions().items():
        before = recorded.get(name)
        if before != value:
            raise DataError(
                f"{folder} was trained with {name} {before!r}, but this environment has {value!r}, which may give "
                "other rows: use the versions that trained the run"
            )


def refuse_differences(config: Pretrain, recorded: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise ConfigError naming the differences between the recorded and the wanted identity."""
    differing = [key for key in sorted(recorded | wanted) if recorded.get(key) != wanted.get(key)]
    if not differing:
        return
    named = ", ".join(
        f"{key} was {recorded.get(key)!r} and is now {wanted.get(key)!r}" for key in differing[:MOST_NAMED]
    )
    more = f" and {len(differing) - MOST_NAMED} more" if len(differing) > MOST_NAMED else ""
    hint = (
        " (steps may grow only in a run of one phase with schedule:constant-rate or schedule:warmup-stable-decay: "
        "other schedules, and several phases, depend on the number of steps)"
        if "steps" in differing
        else ""
    )
    raise ConfigError(
        f"run {config.name} was started with other settings: {named}{more}{hint}; "
        "choose another --name, or use the settings of the run"
    )


def rollback_step(config: Pretrain, recorded: dict[str, Any], done: int) -> int | None:
    """Return the step to which a run with `done` steps must roll back before it is extended: the start of its decay.

    None if no rollback is needed. Raises ConfigError if the schedule has a decay and fewer steps than before are
    requested: the decay would then start at an earlier step, which the run may already have passed.
    """
    start = decay_start(replace(config, steps=recorded["steps"]))
    if start is None or config.steps == recorded["steps"]:
        return None
    if config.steps < recorded["steps"]:
        raise ConfigError(
            f"steps ({config.steps}) must be at least {recorded['steps']}, as requested before for run {config.name}, "
            "whose learning rate may have begun to decay already: "
            "set more steps, or choose another --name"
        )
    return start if done >= start else None


def save_run_vocabulary(folder: str, vocabulary: Vocabulary, maximum_positions: int) -> None:
    """Save the vocabulary in the run's folder, unless the folder has an intact copy.

    Readers of the stream need the vocabulary before the first checkpoint exists.
    """
    target = storage.join(folder, VOCABULARY)
    if storage.damage(target) is None:
        return
    with scratch_folder("vocabulary") as temporary:
        save_vocabulary(vocabulary, temporary, maximum_positions)
        storage.publish(temporary, target, {"fingerprint": vocabulary.fingerprint})


def read_run(folder: str) -> dict[str, Any] | None:
    """Return the contents of run.json; None if the file does not exist. Raises CheckpointError if it is damaged."""
    recorded = _read(folder, RUN, RECORDED, "restore it, or start under another --name")
    return recorded and recorded | {"corpus": moved(recorded["corpus"], folder)}


def write_run(folder: str, wanted: dict[str, Any], steps: int, run_id: str, corpus_folder: str) -> None:
    """Record a run's identity, requested steps, MLflow run and corpus folder."""
    storage.write_json(storage.join(folder, RUN), record(wanted, steps, run_id, corpus_folder))


def record(wanted: dict[str, Any], steps: int, run_id: str, corpus_folder: str) -> dict[str, Any]:
    """Return the contents of run.json."""
    return {"identity": wanted, "steps": steps, "mlflow_run_id": run_id, "corpus": corpus_folder}


def settings_of(recorded: dict[str, Any]) -> Pretrain:
    """Return the settings of a run, given the contents of its run.json.

    A setting that is not in run.json gets the value that runs had before this setting was recorded (see ADDED and
    `implied_objective`), else its default.
    """
    identity = recorded["identity"]
    unrecorded = flatten(Pretrain()) | ADDED | FINGERPRINTED | implied_objective(identity["model.family"])
    return unflatten(Pretrain, unrecorded | identity | {"steps": recorded["steps"]})


def read_summary(folder: str) -> dict[str, Any] | None:
    """Return the summary of a finished run; None for an unfinished run. Raises CheckpointError for a damaged file."""
    remedy = "delete it, and the command that trained the run writes it again"
    summary = _read(folder, SUMMARY, ("steps",), remedy)
    return summary and summary | {key: moved(summary[key], folder) for key in LOCATED if key in summary}


def moved(location: str, folder: str) -> str:
    """Return where a location that a run recorded is now, if the output folder of the run was moved since.

    A recorded location is absolute. If it is missing, and its last names lead to something below the output folder
    that `folder`, the folder of the run, is in now, this is returned, else the recorded location.
    """
    file = sqlite_file(location)
    if file is not None:
        now = moved(file, folder)
        return location if now == file else sqlite_uri(now)
    if not location.startswith("/") or storage.exists(location):
        return location
    output, names = folder.rstrip("/").rsplit("/", 2)[0], location.strip("/").split("/")
    least = 1 if names[-1] == "mlflow.db" else 2  # a folder of a corpus may have the last name of another one
    places = (storage.join(output, *names[start:]) for start in range(len(names) - least + 1))
    return next((place for place in places if storage.exists(place)), location)


def _read(folder: str, name: str, wanted: Sequence[str], remedy: str) -> dict[str, Any] | None:
    """Return the JSON object in a file of a run's folder; None if the file does not exist.

    Raises CheckpointError, with `remedy`, if the file is damaged or lacks a key in `wanted`.
    """
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
    """Return whether a run has a summary and reached the requested steps."""
    return summary is not None and summary["steps"] >= config.steps
