"""Complete configurations by name, of all families. Comments in their files say which settings are ours."""

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from pipeline.command_line.arguments import Argument
from pipeline.command_line.options import did_you_mean, nearest
from pipeline.command_line.toml import read_config, settings_of, to_toml, toml_value
from pipeline.command_line.tree import unchecked
from pipeline.config.data import VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.length import LENGTHS, require_one
from pipeline.config.model_parts import LocalAttention
from pipeline.config.training import Batch, LinearDecay, Muon
from pipeline.errors import ConfigError
from pipeline.presets.albert import ALBERT_PRESETS
from pipeline.presets.bert import BERT_PRESETS, CONTINUED_PRESETS
from pipeline.presets.bigbird import BIGBIRD_PRESETS
from pipeline.presets.deberta import DEBERTA_PRESETS
from pipeline.presets.distilbert import DISTILBERT_PRESETS
from pipeline.presets.electra import ELECTRA_PRESETS
from pipeline.presets.encoder import ENCODER_PRESETS
from pipeline.presets.longformer import LONGFORMER_PRESETS
from pipeline.presets.modernbert import MODERNBERT_PRESETS, SAMPLING, shape
from pipeline.presets.multilingual import MULTILINGUAL_PRESETS
from pipeline.presets.roberta import ROBERTA_PRESETS

P = TypeVar("P", bound=Pretrain)


def _fast(preset: Pretrain) -> Pretrain:
    """Return the preset without attention dropout, which takes time on a CPU and on GPUs that pad rows."""
    return replace(preset, model=replace(preset.model, attention_dropout=0.0))


WITH_DROPOUT: dict[str, Pretrain] = {
    **BERT_PRESETS,
    **ROBERTA_PRESETS,
    **MULTILINGUAL_PRESETS,
    **ELECTRA_PRESETS,
    **DISTILBERT_PRESETS,
    **ALBERT_PRESETS,
    **CONTINUED_PRESETS,
}
"""Presets of which there are fast ones, without attention dropout."""
PRESETS: dict[str, Pretrain] = {
    **ENCODER_PRESETS,
    **WITH_DROPOUT,
    **{f"{name}-fast": _fast(preset) for name, preset in WITH_DROPOUT.items()},
    **MODERNBERT_PRESETS,  # they have no dropout, so they are fast already
    # No "fast" ones: scores with distances are computed on padded rows, with or without attention dropout.
    **DEBERTA_PRESETS,
    **LONGFORMER_PRESETS,
    **BIGBIRD_PRESETS,
}
# `make pretrain` trains this preset. The recipe is ours: a small model that learns much on a CPU in a few minutes. It
# has ModernBERT's parts, Muon, short rows, and word embeddings that start from co-occurrence counts.
PRESETS["quickstart"] = Pretrain(
    steps=1_500,
    word_embeddings="cooccurrence",
    vocabulary=VocabularySettings(size=8_192),
    sampling=replace(SAMPLING, maximum_length=64),
    model=replace(shape(2, 128, 320), attention=LocalAttention(window=128, global_every=1)),  # full attention
    batch=Batch(rows_per_step=64),
    optimizer=Muon(learning_rate=3e-3),
    schedule=LinearDecay(warmup_share=0.1),
)
DEFAULT_PRESET = "encoder-xs"
ABOUT_PRESETS = (
    "Presets, one of which may be the first word "
    f"(default: {DEFAULT_PRESET}; encoder-s for a GPU): {', '.join(PRESETS)}"
)
"""Sentence of a help about presets."""


def split_preset(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the preset that the first argument names, and the other arguments.

    The preset is None if there are no arguments, or if the first is an option (--NAME) or a kind (SETTING:KIND).
    Raises ConfigError, with the nearest name, for an unknown preset.
    """
    if not arguments or arguments[0].startswith("-") or ":" in arguments[0]:
        return None, list(arguments)
    if arguments[0] not in PRESETS:
        text = f"; if it is text to train on, write --corpus {arguments[0]}" if Path(arguments[0]).exists() else ""
        raise ConfigError(f"preset {_unknown_preset(arguments[0])}{text}")
    return arguments[0], list(arguments[1:])


def require_preset(name: str) -> None:
    """Raise ConfigError, with the nearest name, for an unknown preset."""
    if name not in PRESETS:
        raise ConfigError(f"preset {_unknown_preset(name)}")


def _unknown_preset(name: Any) -> str:
    """Return the message for an unknown preset, without the word "preset" at its start."""
    near = did_you_mean(nearest(str(name), PRESETS))
    return f"({name}) does not exist{near or f'; jobs/pretrain.py --help lists all {len(PRESETS)}'}"


def starting_point(preset: str | None, config: str | None) -> tuple[str, Pretrain]:
    """Return the name of a preset, and the preset's settings with those of the config file.

    `preset` and `config` are the preset and the file that the command line names, or None. The file may name a preset
    too. The file's values are not checked yet, because command-line options may replace them. Raises ConfigError for an
    unknown preset, and if the file and the command line name different presets.
    """
    if config is None:
        return preset or DEFAULT_PRESET, PRESETS[preset or DEFAULT_PRESET]
    file = read_config(config, Pretrain)
    named = file.values.pop("preset", preset or DEFAULT_PRESET)
    if not isinstance(named, str) or named not in PRESETS:
        raise file.error("preset", _unknown_preset(named))
    if preset not in (None, named):
        problem = f"({named}) is not the preset of the command ({preset}): leave one of the two presets out"
        raise file.error("preset", problem)
    if len(given := [name for name in LENGTHS if name in file.values]) > 1:
        raise file.error(given[1], f"cannot be set together with {given[0]}: each says how long the run is")
    return named, settings_of(file, PRESETS[named])


def unnamed_note(preset: str | None, config: str | None) -> str | None:
    """Return a line about the default preset; None if the command line or its config file names one."""
    if preset is not None or (config is not None and "preset" in read_config(config, Pretrain).values):
        return None
    return f"preset {DEFAULT_PRESET}, because the command names none; name encoder-s for a GPU"


def with_given_length(default: P, words: Sequence[Argument]) -> P:
    """Return the settings before options are applied, without the length that an option replaces.

    They are not checked yet. Raises ConfigError if the options give several of steps, tokens and epochs.
    """
    given = {word.option.path: word.values[-1] for word in words if word.option is not None and word.values}
    require_one(given)
    if not given.keys() & set(LENGTHS):
        return default
    values = {field.name: getattr(default, field.name) for field in fields(default)}
    return unchecked(type(default), values | {"tokens": None, "epochs": None})


def as_toml(config: Pretrain, preset: str) -> str:
    """Return the settings as the text of a file for --config."""
    text = to_toml(config, PRESETS[preset])
    if config.steps_from:  # the file may have one length alone
        text = re.sub("^steps = .*\n", "", text, count=1, flags=re.MULTILINE)
    return f"preset = {toml_value(preset)}\n{text}"


def require_init(preset: str, config: Pretrain) -> None:
    """Raise ConfigError if a preset continues from a published model, but the settings name no model."""
    if preset.startswith("continue") and config.init is None:
        raise ConfigError(
            f"preset ({preset}) continues from a published model: name it with --init FOLDER, URL or hf://OWNER/NAME"
        )
