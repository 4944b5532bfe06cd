"""Record what an encoder was adapted with, so that the same command continues and another one is refused.

OUTPUT/adapt.json    setting or fact -> value
"""

from typing import Any

from pipeline.adapt.start import AdaptStart
from pipeline.config.adapt import Adapt
from pipeline.config.flat import flatten
from pipeline.errors import ConfigError
from pipeline.files import storage

RECORD = "adapt.json"
COMPARED = ("corpus", "init", "maximum_length", "learning_rate", "seed", "batch")
"""Settings, and groups of settings, that decide the result."""
VERSION, PRESENT = "version", 2
"""Fact that tells outputs of the first version apart: they trained on all text, and shortened what an encoder reads."""


def facts_of(config: Adapt, start: AdaptStart) -> dict[str, Any]:
    """Return what decides the result and is known before the corpus is prepared."""
    settings = {name: value for name, value in flatten(config).items() if name.split(".")[0] in COMPARED}
    return settings | {"init.digest": start.digest, VERSION: PRESENT}


def agree(output: str, facts: dict[str, Any]) -> None:
    """Compare facts with those of earlier calls for this output, and record the new ones.

    Raises ConfigError if a fact has changed, or if the output is a folder of something else.
    """
    location = storage.join(output, RECORD)
    known = storage.read_object(location) or {}
    others = [name for name in storage.children(output) if not name.startswith(".")]
    if others and not known:
        raise ConfigError(f"output ({output}) has other files, such as {others[0]}: choose a new folder")
    if known and VERSION in facts and facts[VERSION] != known.get(VERSION):
        raise ConfigError(
            f"output ({output}) was begun by another version of this job, which held no text out of the training: "
            "choose another --output"
        )
    for name, value in facts.items():
        if known.get(name, value) != value:
            raise ConfigError(
                f"output ({output}) has an encoder adapted with {name} {known[name]}, not with {name} {value}: choose "
                "another --output"
            )
    if not facts.keys() <= known.keys():
        storage.write_json(location, known | facts)
