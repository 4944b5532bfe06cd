"""Read the command lines of an ablation and of a speedrun: their own settings, and those of the pretraining."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from pipeline.command_line.arguments import Extra, extras
from pipeline.command_line.command import Command
from pipeline.command_line.tree import unchecked
from pipeline.config import speedrun
from pipeline.config.ablate import COMMON, Ablate
from pipeline.config.jobs import Pretrain
from pipeline.config.speedrun import Speedrun
from pipeline.errors import ConfigError
from pipeline.presets.table import PRESETS, require_init, require_preset, split_preset, with_given_length


def read_ablate(arguments: Sequence[str], about: str) -> Ablate:
    """Return the settings of a command line of jobs/ablate.py. Raises the errors of `read_ablate_with_extra`."""
    return read_ablate_with_extra(arguments, about, "jobs/ablate.py", ())[0]


def read_ablate_with_extra(
    arguments: Sequence[str], about: str, prog: str, extra: tuple[Extra, ...]
) -> tuple[Ablate, dict[str, str]]:
    """Return the settings of a command line of `prog`, and the values of its options in `extra`, by name.

    The first word may be an ablation's name. Raises ConfigError for invalid settings, and SystemExit after printing
    help.
    """
    named = bool(arguments) and not arguments[0].startswith("-") and ":" not in arguments[0]
    rest = list(arguments[1:]) if named else list(arguments)
    command = Command(prog=f"{prog} [NAME]", about=about, settings=Ablate, common=COMMON, extra=extra)
    words = command.words(rest, _defaults(Ablate.preset, None))
    given = {word.option.path: word for word in words if word.option is not None}
    for name in ("steps", "epochs"):
        if name in given:
            raise ConfigError(
                f"{name} cannot be set: all variants get the same tokens or minutes, which determine the steps; "
                f"leave {name} out"
            )
    if "ablation" in given:
        raise ConfigError(f"ablation is the first word of the command: write {prog} NAME instead of --ablation NAME")
    preset = given["preset"].values[-1] if "preset" in given else Ablate.preset
    require_preset(preset)
    config = command.parse(words, _defaults(preset, arguments[0] if named else None))
    require_init(preset, config)
    return config, extras(words)


def _defaults(preset: str, ablation: str | None) -> Ablate:
    """Return the settings before options are applied.

    These settings are not checked, because the options may still change them.
    """
    return _of_preset(Ablate, preset, ablation=ablation)


def read_speedrun(arguments: Sequence[str], about: str) -> Speedrun:
    """Return the settings of a command line of jobs/speedrun.py, whose first word may be a preset.

    Raises ConfigError for invalid settings, and SystemExit after printing help.
    """
    preset, rest = split_preset(arguments)
    if (preset or "").startswith("continue"):
        raise ConfigError(
            f"preset ({preset}) continues from a published model, but a speedrun learns from --text alone"
        )
    defaults = _of_preset(Speedrun, preset or Speedrun.preset, epochs=float(speedrun.MOST_EPOCHS))
    command = Command(prog="jobs/speedrun.py [PRESET]", about=about, settings=Speedrun, common=speedrun.COMMON)
    words = command.words(rest, defaults)
    if any(word.option is not None and word.option.path == "preset" for word in words):
        raise ConfigError("preset is the first word of the command: write jobs/speedrun.py PRESET instead of --preset")
    return command.parse(words, with_given_length(defaults, words))


def _of_preset(kind: type[Pretrain], preset: str, **values: Any) -> Any:
    """Return settings of a `kind` of pretraining with those of a preset, and with the given values."""
    own = {field.name: field.default for field in dataclasses.fields(kind)}
    base = {field.name: getattr(PRESETS[preset], field.name) for field in dataclasses.fields(Pretrain)}
    return unchecked(kind, own | base | {"preset": preset} | values)
