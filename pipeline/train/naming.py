"""Default name of a run."""

import dataclasses
import hashlib
import json

from pipeline.config.data import PASSING
from pipeline.config.flat import flatten
from pipeline.config.jobs import Pretrain
from pipeline.train.schedule import grows

IDENTITY = ("seed", "word_embeddings", "sampling", "model", "batch", "phases", "optimizer", "schedule")
"""Settings, and groups of settings, that identify a run together with its data."""


def default_name(preset: str, config: Pretrain) -> str:
    """Return PRESET-DIGEST, with a digest of all settings that affect data or training.

    So the same command always means the same run.
    """
    groups = (*IDENTITY, "init", "corpus", "prepare", "vocabulary")
    settings = flatten(config)
    shaping = {key: value for key, value in settings.items() if key.split(".")[0] in groups and key not in PASSING}
    if not grows(config):
        shaping["steps"] = config.steps
    digest = hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()
    return f"{preset}-{digest[:8]}"


def with_name(config: Pretrain, preset: str) -> Pretrain:
    """Return the settings with the run's name: as set, otherwise the default name."""
    return config if config.name else dataclasses.replace(config, name=default_name(preset, config))
