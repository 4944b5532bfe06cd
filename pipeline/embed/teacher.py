"""The teacher of text vectors: read it once in the driver, and load it in every worker."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline import api
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import DistilledVectors
from pipeline.embed.model import Description, VectorModel, describe, digest_of
from pipeline.embed.recipe import Recipe, read_recipe
from pipeline.errors import CheckpointError, ConfigError
from pipeline.objectives.distilled_vectors import Embed
from pipeline.reporting import Report

SETTING = "objective.teacher"
UNKNOWN = Recipe()
"""Result of `read_recipe` for a folder without a recipe."""


@dataclass(frozen=True, kw_only=True)
class TextTeacher:
    """An embedding model as teacher: its description, for loading the same model in every worker."""

    description: Description

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything in the description except the location."""
        about = {name: value for name, value in self.description.as_dict().items() if name != "checkpoint"}
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def load(self, device: torch.device) -> Embed:
        """Load the teacher on a device. Raises CheckpointError if its files have changed since the run began."""
        described = self.description
        loaded = api.load(described.checkpoint, "cpu")
        if (digest := digest_of(loaded)) != described.digest:
            raise CheckpointError(
                f"{SETTING} {described.checkpoint} has changed since the run began: its digest is {digest}, and was "
                f"{described.digest}; restore its files, or start under another --name"
            )

        model = replace(loaded, encoder=loaded.encoder.to(device), device=device)

        def embed(texts: Sequence[str]) -> Tensor:
            prompted = [described.prompt + text for text in texts]
            return torch.from_numpy(model.embed(prompted, prompt="")).to(device)

        return embed


def with_vector_teacher(config: Pretrain, report: Report) -> tuple[Pretrain, TextTeacher | None]:
    """Return the settings with objective.teacher_width set, and the teacher.

    For other objectives, return the settings unchanged, and None as the teacher. Raises ConfigError if the teacher is
    not set or has another width, and CheckpointError if it cannot be used.
    """
    objective = config.objective
    if not isinstance(objective, DistilledVectors):
        return config, None
    if not objective.teacher:
        raise ConfigError(
            f"{SETTING} is not set: give the embedding model to learn from, such as "
            "hf://sentence-transformers/all-MiniLM-L6-v2"
        )
    described = _describe(objective.teacher, objective.teacher_prompt)
    width = described.dimension
    if objective.teacher_width not in (None, width):
        raise ConfigError(
            f"objective.teacher_width ({objective.teacher_width}) must be the dimension of the vectors of {SETTING} "
            f"{objective.teacher} ({width}): leave objective.teacher_width out"
        )
    report(f"{SETTING}: {_about(objective.teacher, described, config)}")
    return replace(config, objective=replace(objective, teacher_width=width)), TextTeacher(description=described)


def _describe(location: str, prompt: str | None) -> Description:
    """Describe the model at a location. Raises CheckpointError if it is no embedding model."""
    try:
        model = api.load(location, "cpu")
    except (CheckpointError, ConfigError) as error:
        raise type(error)(f"{SETTING} {error}") from error
    similar = model.tuned is not None and model.tuned.about.task.kind == "similarity"
    if not similar and read_recipe(model.location, UNKNOWN) is UNKNOWN:
        raise CheckpointError(
            f"{SETTING} {location} has no modules.json, so it does not say how a text becomes a vector: give an "
            "embedding model in the format of sentence-transformers"
        )
    return describe(VectorModel(model=model, prompt=model.recipe.prompt(prompt), precision="float32"))


def _about(location: str, described: Description, config: Pretrain) -> str:
    """Describe the teacher in one line, with the layer that its width needs."""
    prompt = f", prompt {described.prompt!r}" if described.prompt else ""
    width = config.model.width
    layer = f"; a linear layer maps the student's {width} numbers to these" if width != described.dimension else ""
    read = f"reads at most {described.maximum_length} tokens of a text{prompt}"
    return f"vectors of {location}, {described.dimension} numbers, {described.pooling} pooling, {read}{layer}"
