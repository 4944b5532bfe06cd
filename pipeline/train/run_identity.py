"""Identity of a run: the settings, versions and fingerprints that must match, so that it can continue."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pipeline.config.jobs import Pretrain
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.optim.schedule import decay_start
from pipeline.saved.naming import grows, identifying_settings
from pipeline.saved.run import VOCABULARY
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

if TYPE_CHECKING:  # this import loads Ray, which code that reads finished runs does not need
    from pipeline.corpus.prepared import Corpus

MOST_NAMED = 4
"""Maximum differing settings in a message."""


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

    return sentences.row_versions()


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
    requested: the decay would then start at an earlier step, which the run may already have passed. Also raises it for
    more steps if the decay starts at the first step.
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
    if start == 0 < done:
        raise ConfigError(
            f"steps ({config.steps}) cannot be more than {recorded['steps']} in run {config.name}: its learning rate "
            "decays from the first step on, so it has no step before its decay to continue from: choose another --name"
        )
    return start if done >= start > 0 else None


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
