"""Read an ablation's command line: the ablation's name or the settings to vary, and the settings of the base run."""

import dataclasses
from collections.abc import Sequence

from pipeline.command_line.arguments import Extra, extras
from pipeline.command_line.command import Command, unchecked
from pipeline.config.ablate import COMMON, Ablate
from pipeline.config.jobs import Pretrain
from pipeline.errors import ConfigError
from pipeline.presets.table import PRESETS, require_init, require_preset


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
    own = {field.name: field.default for field in dataclasses.fields(Ablate)}
    base = {field.name: getattr(PRESETS[preset], field.name) for field in dataclasses.fields(Pretrain)}
    return unchecked(Ablate, own | base | {"preset": preset, "ablation": ablation})
