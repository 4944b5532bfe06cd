"""Expand an ablation into its variants, and return the pretraining settings of each variant."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.command_line.arguments import converted
from pipeline.command_line.options import choices, did_you_mean, flag, flag_of, nearest, options_of
from pipeline.command_line.tree import unchecked
from pipeline.config.ablate import Ablate
from pipeline.config.ablations import ABLATIONS, OfBase, Row, Value
from pipeline.config.flat import flatten, unflatten
from pipeline.config.jobs import Pretrain, with_usual_slots, with_words_rate
from pipeline.config.length import LENGTHS
from pipeline.errors import ConfigError
from pipeline.saved.naming import DATA, IDENTITY, default_name, is_unrecorded

SHARED = (
    *("corpus", "prepare", "output", "name", "seed", "placement", "workers"),
    *("evaluation", "tracking", "checkpoint", "on_nonfinite"),
)
"""Settings and groups of settings that must be the same in all variants."""
RECORDED = ("sampling.copies", "phases.masking_share")
"""Settings that are always part of an ablation's digest, although earlier versions did not record them in runs."""
BASE = "base"
"""Label of the first variant if several settings are varied."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One row of the result table: a pretraining that runs once per seed."""

    label: str
    config: Pretrain
    """Settings with the first seed and the preset's steps."""
    preset: str
    steps: dict[int, int] = field(default_factory=dict)
    """Seed -> steps of the run with this seed; empty until the budget is known."""

    def run(self, seed: int) -> Pretrain:
        """Return the settings of the run with this seed, including the name that pretraining gives this run.

        Raises ConfigError, which names the label, if the settings do not allow this number of steps.
        """
        steps = self.steps.get(seed, self.config.steps)
        try:
            config = replace(self.config, seed=seed, steps=steps)
        except ConfigError as error:
            raise ConfigError(f"variant {self.label!r} with {steps:,} steps: {error}") from error
        return replace(config, name=default_name(self.preset, config))


def variants_of(config: Ablate) -> tuple[Variant, ...]:
    """Return the variants. The first variant is the one that all others are compared with.

    Raises ConfigError if:

    - a setting to vary does not exist, or must be the same in all variants
    - the settings of a variant do not fit together
    - there are fewer than two variants, or two variants are equal
    """
    base = _base_of(config)
    rows = ABLATIONS[config.ablation].rows if config.ablation is not None else _rows_over(config.over)
    if len(rows) < 2:
        raise ConfigError(
            f"over ({', '.join(config.over)}) gives one variant, but a comparison needs at least two: give more "
            "values, as in NAME=VALUE,VALUE"
        )
    variants = tuple(Variant(label=row.label, config=_config_of(base, row), preset=config.preset) for row in rows)
    for number, variant in enumerate(variants):
        for other in variants[:number]:
            if variant.config == other.config:
                raise ConfigError(
                    f"variants {other.label!r} and {variant.label!r} have the same settings: leave one variant out"
                )
    return variants


def _base_of(config: Ablate) -> Pretrain:
    """Return the settings of pretraining that an ablation's variants start from.

    All variants have the rows per slot of a CPU if these are `auto`, so that a comparison does not depend on a GPU.
    """
    names = {each.name for each in dataclasses.fields(Pretrain)} - {"tokens"}  # each run gets the steps for its tokens
    base = Pretrain(**{name: getattr(config, name) for name in names})
    return with_usual_slots(with_words_rate(base))


def ablation_name(config: Ablate, variants: tuple[Variant, ...]) -> str:
    """Return NAME-DIGEST, with a digest of the variants' settings, data and budget.

    Seeds and scores are not in the digest. So a command with more seeds or other scores adds to the same table.
    """
    groups = set(IDENTITY) | set(DATA)
    settings = [
        {
            key: value
            for key, value in flatten(variant.config).items()
            if key.split(".")[0] in groups - {"seed"} and (key in RECORDED or not is_unrecorded(key, value))
        }
        for variant in variants
    ]
    text = json.dumps([config.preset, config.budget, [variant.label for variant in variants], settings], sort_keys=True)
    return f"{config.ablation or 'over'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _rows_over(over: tuple[str, ...]) -> tuple[Row, ...]:
    """Return the rows of --over.

    The first row has the first value of every setting. Each further value of a setting gives one more row. In this row,
    all other settings have their first values.
    """
    entries = {}
    for entry in over:
        name, equals, values = entry.partition("=")
        name = name.replace("-", "_")
        if not equals or not all(values.split(",")):
            raise ConfigError(f"over ({entry}) must be NAME=VALUE,VALUE, such as sampling.masking.share=0.15,0.3")
        if name in entries:
            raise ConfigError(f"over ({name}) is given twice: give all values in one --over {name}=VALUE,VALUE")
        entries[name] = values.split(",")
    first: dict[str, Value] = {name: values[0] for name, values in entries.items()}
    own = ", ".join(f"{name}={value}" for name, value in first.items())
    others = [
        Row(label=f"{name}={value}", settings=first | {name: value})
        for name, values in entries.items()
        for value in values[1:]
    ]
    return (Row(label=own if len(first) == 1 else f"{BASE} ({own})", settings=first), *others)


def _config_of(base: Pretrain, row: Row) -> Pretrain:
    """Return the settings of a row. Raises ConfigError, with the row's label, if they are invalid."""
    for name in row.settings:
        _refuse_shared(name)
    settings = {name: _text(base, name, value) for name, value in row.settings.items()}
    try:
        return _with_settings(base, settings)
    except ConfigError as error:
        raise ConfigError(f"variant {row.label!r}: {error}") from error


def _text(base: Pretrain, name: str, value: Value) -> str:
    """Return a value as written on the command line. An OfBase value is computed from the base run."""
    if not isinstance(value, OfBase):
        return value
    known = flatten(base)[value.setting] * value.times
    if isinstance(flatten(base)[value.setting], int):
        if known != int(known):
            raise ConfigError(
                f"{name} would be {value.times:g} × {value.setting} ({flatten(base)[value.setting]}), which is not a "
                f"whole number: set another {value.setting}"
            )
        return str(int(known))
    return repr(known)


def _refuse_shared(name: str) -> None:
    """Raise ConfigError for a setting that does not exist, or that all variants must share."""
    kinds = choices(Pretrain)
    known = {option.path for option in options_of(Pretrain)} | set(kinds)
    if name not in known:
        raise ConfigError(f"over ({name}): no setting of pretraining has this name{did_you_mean(nearest(name, known))}")
    if name in LENGTHS:
        raise ConfigError(
            f"over ({name}) cannot be set: all variants get the same tokens or minutes, which determine the steps"
        )
    if name.split(".")[0] in SHARED:
        raise ConfigError(
            f"over ({name}): all variants must have the same {name}; set it for all of them with {flag(name)}"
        )


def _with_settings(base: Pretrain, settings: dict[str, str]) -> Pretrain:
    """Return `base` with the values of `settings`, {dotted name: value as on the command line}.

    If a setting changes to another kind, the fields that the old and the new kind share keep their values.
    Raises ConfigError for an invalid value.
    """
    kinds, changed = choices(Pretrain), base
    for path in sorted(settings.keys() & kinds.keys()):
        if settings[path] not in kinds[path]:
            near = did_you_mean(nearest(settings[path], kinds[path]))
            raise ConfigError(f"{path} ({settings[path]}) must be one of {', '.join(kinds[path])}{near}")
        changed = _with_kind(changed, path, kinds[path][settings[path]])
    for path, text in settings.items():
        if path not in kinds:
            changed = _with_value(changed, path, _parsed(path, text))
    return unflatten(Pretrain, flatten(changed))  # builds every part anew, with its checks


def _parsed(path: str, text: str) -> Any:
    """Return the value of a setting from its text. Raises ConfigError if the text does not fit the setting's type."""
    option = next(option for option in options_of(Pretrain) if option.path == path)
    if option.boolean and text in ("true", "false"):
        text = text.capitalize()
    return converted(path, option.hint, text.split(",") if option.many else [text])


def _with_value(settings: Any, path: str, value: Any) -> Any:
    """Return unchecked settings with the value at a dotted name. Raises ConfigError if the kind lacks this name."""
    first, _, rest = path.partition(".")
    values = {each.name: getattr(settings, each.name) for each in dataclasses.fields(settings)}
    if first not in values:
        raise ConfigError(
            f"{first} is not a setting of {flag_of(type(settings))}: choose a kind that has {first} as well"
        )
    return unchecked(type(settings), values | {first: _with_value(values[first], rest, value) if rest else value})


def _with_kind(settings: Any, path: str, kind: Any) -> Any:
    """Return unchecked settings in which the part at a dotted name has this kind.

    Fields that the old and the new kind share keep their values.
    """
    first, _, rest = path.partition(".")
    part = getattr(settings, first)
    if rest:
        part = _with_kind(part, rest, kind)
    elif type(part) is not kind:
        part = unchecked(kind, {each.name: getattr(part, each.name, each.default) for each in dataclasses.fields(kind)})
    return _with_value(settings, first, part)
