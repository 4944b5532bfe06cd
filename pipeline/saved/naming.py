"""Settings that identify a run, also those that earlier versions did not record, and the default name of a run."""

import dataclasses
import hashlib
import json
from typing import Any

from pipeline.config.data import PASSING
from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain
from pipeline.config.model_parts import BucketedAttention, DisentangledAttention
from pipeline.config.objective import Masked, Replaced
from pipeline.config.training import ConstantRate, Lamb, WarmupStableDecay

IDENTITY = ("seed", "word_embeddings", "sampling", "model", "batch", "phases", "objective", "optimizer", "schedule")
"""Settings, and groups of settings, that identify a run together with its data."""
DATA = ("init", "corpus", "prepare", "vocabulary")
"""Settings, and groups of settings, of a run's data and initial model."""
ADDED: dict[str, Any] = {
    "sampling.copies": None,
    "sampling.language_exponent": 1.0,
    "sampling.mix_languages": True,
    "sampling.query_prompt": None,
    "sampling.document_prompt": None,
    "sampling.exported_length": None,
    "batch.reduce_precision": "float32",
    "phases.masking_share": None,
    "phases.theta": None,
    "model.activation": "gelu",
    "objective.decoder": "plain",
    "objective.generator_depth": 1.0,
    "objective.embedding_sharing": "all",
    "model.positions": "LearnedPositions",
    "model.attention": "FullAttention",
    "model.inner": "plain",
    "model.block": "post-norm",
    "model.bias": True,
    "vocabulary.special_tokens": None,
    "vocabulary.characters": 1_000,
    "cutting.passage_pooling": "logits",
    "cutting.maximum_passages": 32,
    "recipe.rows_per_class": None,
    "recipe.contrastive_pairs": None,
    "ranking.loss": "binary",
    "ranking.candidates": 8,
    "cutting.continuation": "inside",
    "recipe.crf": False,
    "negative": [],
    "choices": [],
    "intent": None,
    "words": None,
    "similarity.margin": 5.0,
    "similarity.negatives": 8,
    "similarity.dimensions": [],
}
"""Settings that runs and trials of earlier versions did not record -> the value that those runs had."""
FINGERPRINTED: dict[str, Any] = {"objective.teacher": None}
"""Settings in the groups of IDENTITY that hold a location -> the value that they get when run.json is read.

A run does not record these locations; it records a fingerprint of the files instead.
"""
GROWS: tuple[type, ...] = (ConstantRate, WarmupStableDecay)
"""Schedules under which a run may get more steps later: before a decay, rates do not depend on the number of steps."""


def grows(config: Pretrain) -> bool:
    """Return whether a run may be extended to more steps.

    With several phases it may not, because each has a share of the steps.
    """
    return type(config.schedule) in GROWS and len(config.all_phases) == 1


def is_unrecorded(key: str, value: Any) -> bool:
    """Return whether `value` is the value of a setting in earlier versions, which did not record the setting."""
    return key in ADDED and ADDED[key] == value


def identifying_settings(config: Pretrain) -> dict[str, Any]:
    """Return dotted name -> value of the settings that identify a run.

    Runs of earlier versions did not record some settings. Such a setting is left out if it has the value that those
    runs had, so those runs keep their names and can be continued. Masking is left out for rows without
    masks.
    """
    implied = ADDED | implied_objective(config.model.family)
    unused = () if config.sampling.masks else ("sampling.masking",)
    return {
        key: value
        for key, value in flatten(config).items()
        if key.split(".")[0] in IDENTITY
        and key not in FINGERPRINTED
        and not key.startswith(unused)
        and not (key in implied and implied[key] == value)
    } | _other_updates(config)


def _other_updates(config: Pretrain) -> dict[str, bool]:
    """Return an entry for runs whose weights earlier versions updated by other rules; they must not be continued."""
    optimizer, attention = config.optimizer, config.model.attention
    scaled = isinstance(optimizer, Lamb) and optimizer.weight_decay == 0
    relative = isinstance(attention, DisentangledAttention | BucketedAttention)
    decays = relative and optimizer.layer_decay not in (None, 1)
    return {"optimizer.later_rules": True} if scaled or decays else {}


def implied_objective(family: str) -> dict[str, Any]:
    """Return dotted name -> value of the objective's settings, for a run that did not record its objective.

    `family` is the family of the run's model; it decides which objective the run had.
    """
    objective = Replaced() if family == "electra" else Masked()
    return {"objective": type(objective).__name__} | flatten(objective, "objective.")


def default_name(preset: str, config: Pretrain) -> str:
    """Return PRESET-DIGEST, with a digest of all settings that affect data or training.

    So the same command always means the same run. If a run may be extended to more steps, the digest leaves out the
    number of steps. Tokens or epochs in place of steps are in the digest as given.
    """
    shaping = identifying_settings(config) | {
        key: value
        for key, value in flatten(config).items()
        if (key.split(".")[0] in DATA or key in FINGERPRINTED) and key not in PASSING and not is_unrecorded(key, value)
    }
    if config.steps_from:
        shaping |= config.steps_from
    elif not grows(config):
        shaping["steps"] = config.steps
    digest = hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()
    return f"{preset}-{digest[:8]}"


def with_name(config: Pretrain, preset: str) -> Pretrain:
    """Return the settings with the run's name: as set, otherwise the default name."""
    return config if config.name else dataclasses.replace(config, name=default_name(preset, config))
