"""Expand a search into the settings to try: all combinations of listed values, with values drawn from ranges."""

import dataclasses
import itertools
import json
import math
from typing import Any, get_args, get_type_hints

from pipeline.command_line.arguments import converted
from pipeline.command_line.options import flag_of
from pipeline.config.adapters import Adapter
from pipeline.config.finetune import HIGH_RATE, Finetune, GridSearch, usual_rate
from pipeline.config.flat import flatten
from pipeline.config.model import Model
from pipeline.config.recipe import DROPOUT
from pipeline.config.similarity import LOSSES_WITH
from pipeline.errors import ConfigError, listed
from pipeline.text.randomness import numbered_generator

GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "none": {},
    "bert": {
        "recipe.rows_per_step": (16, 32),
        "optimizer.learning_rate": (5e-5, 3e-5, 2e-5),
        "recipe.epochs": (2, 3, 4),
    },
    "miniatures": {
        "recipe.rows_per_step": (8, 16, 32, 64, 128),
        "optimizer.learning_rate": (3e-4, 1e-4, 5e-5, 3e-5),
        "recipe.epochs": (4,),
    },
}
"""Grid -> dotted name -> values to try.

Sources: Devlin et al. 2019, A.3, for bert; the README of google-research/bert for miniatures, the smaller models.
"""
SEARCHED = ("cutting", "recipe", "similarity", "optimizer", "schedule", "freeze", "adapter")
"""Groups of settings that a search may vary."""
NOT_SEARCHED = ("recipe.metric", "similarity.dimensions")
"""Settings in the groups of SEARCHED that a search may not vary. recipe.metric is the metric that selects settings, and
similarity.dimensions decides which metrics there are.
"""
LOSS = "similarity.loss"
DROPOUT_NAME = "recipe.dropout"
DRAWS = 7_001
"""Key of the random generator that draws settings."""


def settings_of(config: Finetune) -> list[dict[str, Any]]:
    """Return the settings to try, each as {dotted name: value}. Without a search, return one empty setting.

    The same config always gives the same draws. Raises ConfigError for an invalid name, value or range.
    """
    values, ranges, hints = dict(GRIDS[config.search.grid]), {}, _hints_of(config)
    entries = [(entry, *entry.partition("=")[::2]) for entry in config.search.over]
    # A name without a dot, such as adapter, chooses a kind. These come first, because a kind defines further names. The
    # loss is next, because it decides which settings of similarity are valid.
    given: set[str] = set()
    for entry, name, text in sorted(entries, key=lambda entry: ("." in entry[1], entry[1] != LOSS)):
        name = name.replace("-", "_")
        if "=" not in entry or name not in hints:
            raise ConfigError(
                f"search.over ({entry}) must be NAME=VALUE,VALUE or NAME=LOW..HIGH, where NAME is one of "
                f"{', '.join(hints)}"
            )
        if name in given:
            raise ConfigError(
                f"search.over ({name}) is given twice: give all values in one --search.over {name}=VALUE,VALUE"
            )
        given.add(name)
        if ".." in text:
            _require_number(hints[name], entry, name)
            ranges[name] = _bounds(entry, text)
        else:
            values[name] = tuple(_parse_value(hints[name], entry, value) for value in text.split(","))
            if _is_choice(hints[name]):
                for kind in values[name]:
                    hints |= _hints_of(with_setting(config, {name: kind}))
    fixed = [dict(zip(values, chosen)) for chosen in itertools.product(*values.values())]
    draws = _draws(config.search, ranges, hints)
    expanded = [_without_unused(config, setting | draw) for draw in draws for setting in fixed]
    for setting in expanded:
        with_setting(config, setting)
    # Remove duplicates: draws from a short range of whole numbers may be equal.
    return list({json.dumps(setting, sort_keys=True): setting for setting in expanded}.values())


def _hints_of(config: Finetune) -> dict[str, Any]:
    """Return dotted name -> type, for the settings that a search may vary."""
    return {
        name: _hint_of(config, name)
        for name in flatten(config)
        if name.split(".")[0] in SEARCHED and name not in NOT_SEARCHED
    }


def _is_choice(hint: Any) -> bool:
    """Return whether a setting of this type, such as `adapter`, chooses between kinds that have their own settings."""
    return all(map(dataclasses.is_dataclass, _kinds_of(hint)))


def _kinds_of(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union type, the values of a Literal type, or the type itself."""
    return getattr(hint, "__args__", (hint,))


def _without_unused(config: Finetune, chosen: dict[str, Any]) -> dict[str, Any]:
    """Drop the settings that the chosen kinds and the tried similarity.loss do not have, such as adapter.rank without
    an adapter.
    """
    known = set(flatten(with_setting(config, {name: value for name, value in chosen.items() if "." not in name})))
    if (loss := chosen.get(LOSS)) is not None:
        known -= {f"similarity.{name}" for name, losses in LOSSES_WITH.items() if loss not in losses}
    return {name: value for name, value in chosen.items() if name in known}


def _require_number(hint: Any, entry: str, name: str) -> None:
    """Raise ConfigError if a setting is not a number. Only numbers can have ranges."""
    if not {int, float} & set(_kinds_of(hint)):
        raise ConfigError(f"search.over ({entry}): {name} is not a number and has no range; give {name}=VALUE,VALUE")


def _bounds(entry: str, text: str) -> tuple[float, float]:
    """Parse LOW..HIGH. Raises ConfigError if these are not two numbers with 0 < LOW < HIGH."""
    try:
        low, high = (float(bound) for bound in text.split(".."))
    except ValueError:
        low = high = math.nan
    if not 0 < low < high:
        raise ConfigError(f"search.over ({entry}): a range is LOW..HIGH with 0 < LOW < HIGH, such as 1e-5..1e-3")
    return low, high


def _parse_value(hint: Any, entry: str, text: str) -> Any:
    """Parse a value of type `hint`. A kind is returned as the name of its class, as in `flatten`.

    Raises ConfigError for a value of another type.
    """
    options = _kinds_of(hint)
    if _is_choice(hint):
        named = {flag_of(kind): kind.__name__ for kind in options}
        if text not in named:
            raise ConfigError(f"search.over ({entry}): {text} is not one of {', '.join(named)}")
        return named[text]
    try:
        return converted("search.over", hint, [text])
    except ConfigError as error:
        wanted = ", ".join(getattr(option, "__name__", str(option)).replace("NoneType", "None") for option in options)
        raise ConfigError(f"search.over ({entry}): {text} is not one of {wanted}") from error


def _hint_of(config: Any, name: str) -> Any:
    """Return the type of a setting by its dotted name."""
    *path, leaf = name.split(".")
    for part in path:
        config = getattr(config, part)
    return get_type_hints(type(config))[leaf]


def _draws(search: GridSearch, ranges: dict[str, tuple[float, float]], hints: dict[str, Any]) -> list[dict[str, Any]]:
    """Return search.samples draws. A draw has one log-uniform value per range. Without ranges, return an empty draw."""
    if not ranges:
        return [{}]
    random = numbered_generator(0, DRAWS)
    draws = [
        {name: math.exp(random.uniform(math.log(low), math.log(high))) for name, (low, high) in ranges.items()}
        for _ in range(search.samples)
    ]
    return [{name: _rounded(hints[name], value) for name, value in draw.items()} for draw in draws]


def _rounded(hint: Any, value: float) -> float | int:
    """Round to a whole number for an integer setting, and to three significant digits for other settings."""
    return round(value) if int in _kinds_of(hint) else float(f"{value:.3g}")


def with_setting(config: Any, chosen: dict[str, Any]) -> Any:
    """Return the config with the values of `chosen`, {dotted name: value}.

    A kind is given as the name of its class. If this changes the kind, the new kind gets its default settings. Raises
    ConfigError for invalid values.
    """
    for name, value in chosen.items():
        first, _, rest = name.partition(".")
        part = getattr(config, first)
        if rest:
            part = with_setting(part, {rest: value})
        elif not dataclasses.is_dataclass(part):
            part = value
        elif type(part).__name__ != value:
            part = next(kind for kind in _kinds_of(_hint_of(config, first)) if kind.__name__ == value)()
        config = dataclasses.replace(config, **{first: part})
    return config


def in_words(setting: dict[str, Any]) -> str:
    """Return a setting as text; kinds are named as on the command line."""
    kinds = {kind.__name__: flag_of(kind) for kind in get_args(Adapter)}
    return ", ".join(
        f"{name.rsplit('.', 1)[-1].replace('_', ' ')} "
        f"{f'{value:g}' if isinstance(value, float) else kinds.get(value, value)}"
        for name, value in setting.items()
    )


def warnings(config: Finetune, settings: list[dict[str, Any]], model: Model) -> list[str]:
    """Return warnings to show before the trials: learning rates too high for the width, no dropout, no warm-up."""
    width = model.width
    rates = {setting.get("optimizer.learning_rate", config.optimizer.learning_rate) for setting in settings}
    high = sorted(rate for rate in rates if rate is not None and rate > HIGH_RATE * usual_rate(width))
    lines = [
        f"warning: optimizer.learning_rate {listed(f'{rate:g}' for rate in high)} is far above {usual_rate(width):g}, "
        f"which is usual at width {width}: the encoder may forget what it learnt"
    ] * bool(high)
    if {setting.get(DROPOUT_NAME, config.recipe.dropout) for setting in settings} == {0}:
        lines.append(
            f"warning: {DROPOUT_NAME} is 0: small tasks overfit without dropout; {DROPOUT} is the default and the "
            "published value"
        )
    dimensions = config.similarity.dimensions
    if dimensions and width not in dimensions:
        lines.append(
            f"warning: similarity.dimensions ({', '.join(map(str, dimensions))}) leaves out the encoder's width "
            f"({width}): whole vectors are scored, but not trained"
        )
    share = config.schedule.warmup_share
    return lines + [
        "warning: schedule.warmup_share is 0: without a warm-up large encoders collapse (Mosbach et al. 2021); 0.1 is "
        "the default"
    ] * (share == 0)
