"""Records of a run in its folder: its settings, its steps, its vocabulary and its summary.

OUTPUT/runs/NAME/
    vocabulary/         the run's vocabulary
    run.json            identity, steps and MLflow run
    lease.json          driver of a run in an object store: see files/lease.py
    checkpoints/        see train/checkpoint.py
    positions/          stream position at each checkpoint
    reservation.json    name under which the last elastic driver requested nodes
    export/             the published format
    summary.json        written last, when the run is finished
    audit.json          texts that an audit has looked for in the run's rows
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pipeline.config.flat import flatten, unflatten
from pipeline.config.jobs import Pretrain, with_usual_slots
from pipeline.errors import CheckpointError, ConfigError
from pipeline.files import storage
from pipeline.files.locations import absolute, sqlite_file, sqlite_uri
from pipeline.saved.checkpoints import CHECKPOINTS, NAME, step_of
from pipeline.saved.naming import ADDED, FINGERPRINTED, default_name, implied_objective

SUMMARY, RUN, VOCABULARY, RUNS, AUDIT = "summary.json", "run.json", "vocabulary", "runs", "audit.json"
RECORDED = ("identity", "steps", "mlflow_run_id", "corpus")
"""Keys of run.json."""
LOCATED = ("export", "checkpoint", "mlflow_uri")
"""Keys of summary.json whose values are locations, mostly in the run's output folder."""
EVALUATED_ROWS = "evaluation_rows"
"""Key of summary.json: the maximum number of held-out rows per evaluation. Older summaries lack the key."""


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """The run and the step of a checkpoint."""

    folder: str
    step: int
    settings: Pretrain
    """Settings of the run, such as its sampling and its objective."""
    corpus: str
    """Folder of the prepared corpus."""


def run_folder(config: Pretrain) -> str:
    """Return the folder of a named run."""
    return storage.join(config.output, RUNS, str(config.name))


def with_begun_name(config: Pretrain, preset: str) -> Pretrain:
    """Return the settings with the name of the run that they begin or continue: as set, else a default name.

    Earlier versions had numbers where slots are `auto` now, and so other default names. The run has the name of an
    earlier version if the output folder has a run of that name, and none of the present name.
    """
    if config.name:
        return config
    output = absolute(config.output)
    names = [default_name(preset, settings) for settings in (config, with_usual_slots(replace(config, workers=1)))]
    begun = [False, False]
    if names[0] != names[1]:
        with suppress(OSError):  # the run itself reports storage that cannot be read
            begun = [storage.exists(storage.join(output, RUNS, name, RUN)) for name in names]
    return replace(config, name=names[1] if begun == [False, True] else names[0])


def read_run(folder: str) -> dict[str, Any] | None:
    """Return the contents of run.json; None if the file does not exist. Raises CheckpointError if it is damaged."""
    recorded = _read(folder, RUN, RECORDED, "restore it, or start under another --name")
    return recorded and recorded | {"corpus": moved(recorded["corpus"], folder)}


def write_run(
    folder: str,
    wanted: dict[str, Any],
    steps: int,
    run_id: str,
    corpus_folder: str,
    steps_from: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Record a run's identity, requested steps and from what they were counted, MLflow run and corpus folder."""
    storage.write_json(storage.join(folder, RUN), record(wanted, steps, run_id, corpus_folder) | dict(steps_from))


def forget_setting(folder: str, name: str) -> None:
    """Remove a setting from the identity that is recorded in the folder of a run."""
    if recorded := read_run(folder):
        kept = {key: value for key, value in recorded["identity"].items() if key != name}
        storage.write_json(storage.join(folder, RUN), recorded | {"identity": kept})


def record(wanted: dict[str, Any], steps: int, run_id: str, corpus_folder: str) -> dict[str, Any]:
    """Return the contents of run.json."""
    return {"identity": wanted, "steps": steps, "mlflow_run_id": run_id, "corpus": corpus_folder}


def recorded_steps(config: Pretrain, recorded: dict[str, Any] | None) -> int | None:
    """Return the steps of a run that was begun with the same tokens or epochs; None if they must be counted.

    `recorded` is the contents of run.json, or None for a new run.
    """
    if recorded is None or any(recorded.get(name) != value for name, value in config.steps_from.items()):
        return None
    return recorded["steps"]


def settings_of(recorded: dict[str, Any]) -> Pretrain:
    """Return the settings of a run, given the contents of its run.json.

    A setting that is not in run.json gets the value that runs had before this setting was recorded (see ADDED and
    `implied_objective`), else its default.
    """
    identity = recorded["identity"]
    unrecorded = flatten(Pretrain()) | ADDED | FINGERPRINTED | implied_objective(identity["model.family"])
    return unflatten(Pretrain, unrecorded | identity | {"steps": recorded["steps"]})


def run_of_checkpoint(location: str) -> OfRun | None:
    """Return the run of a checkpoint's folder, RUN/checkpoints/step-N; None for any other folder.

    Raises CheckpointError if the run's run.json is damaged.
    """
    folder, found, name = location.rpartition(f"/{CHECKPOINTS}/")
    recorded = read_run(folder) if found and NAME.fullmatch(name) else None
    if recorded is None:
        return None
    return OfRun(folder=folder, step=step_of(name), settings=settings_of(recorded), corpus=recorded["corpus"])


def read_summary(folder: str) -> dict[str, Any] | None:
    """Return the summary of a finished run; None for an unfinished run. Raises CheckpointError for a damaged file."""
    remedy = "delete it, and the command that trained the run writes it again"
    summary = _read(folder, SUMMARY, ("steps",), remedy)
    return summary and summary | {key: moved(summary[key], folder) for key in LOCATED if key in summary}


def read_audit(folder: str) -> dict[str, Any]:
    """Return {name of a split: what an audit found}; empty without an audit.

    Raises CheckpointError if the file is damaged.
    """
    return _read(folder, AUDIT, (), "delete it, and run the audit again") or {}


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


def recorded_run(folder: str) -> dict[str, Any]:
    """Return the run.json of a run's folder.

    Raises ConfigError if the folder has no run.json, and CheckpointError if run.json is damaged.
    """
    recorded = read_run(folder)
    if recorded is None:
        raise ConfigError(f"{folder} is not the folder of a run: {RUN} is missing; runs are in OUTPUT/runs")
    return recorded
