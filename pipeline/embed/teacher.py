"""The teacher of text vectors: read it once in the driver, and load it in every worker."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from pipeline.config.jobs import Pretrain
from pipeline.config.objective import DistilledVectors
from pipeline.embed.description import Description
from pipeline.embed.loaded import load as load_encoder
from pipeline.embed.model import VectorModel, describe
from pipeline.errors import CheckpointError, ConfigError, class_of
from pipeline.objectives.distilled_vectors import Embed
from pipeline.reporting import Report
from pipeline.saved.recipe import stated_recipe
from pipeline.tasks.kinds import KINDS

SETTING, PROMPT = "objective.teacher", "objective.teacher_prompt"
"""Settings of a run that name the teacher, and the prompt of its texts."""


@dataclass(frozen=True, kw_only=True)
class TextTeacher:
    """An embedding model as teacher: its description, for loading the same model in every worker."""

    description: Description
    prompt: str | None
    """objective.teacher_prompt."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything in the description except the location."""
        about = {name: value for name, value in self.description.as_dict().items() if name != "checkpoint"}
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def load(self, device: torch.device) -> Embed:
        """Load the teacher on a device.

        Raises CheckpointError if it cannot be read here, and if its files have changed since the run began.
        """
        described = self.description
        try:
            loaded = _load(described.checkpoint, self.prompt)
        except (CheckpointError, ConfigError) as error:
            raise CheckpointError(f"{error}; every worker must be able to read {SETTING}") from error
        _require_same(describe(loaded), described)
        model = replace(loaded.model, encoder=loaded.model.encoder.to(device), device=device)

        def embed(texts: Sequence[str]) -> Tensor:
            prompted = [described.prompt + text for text in texts]
            return torch.from_numpy(model.embed(prompted, prompt="")).to(device)

        return embed


def with_vector_teacher(config: Pretrain, report: Report) -> tuple[Pretrain, TextTeacher]:
    """Return the settings with objective.teacher_width set, and the teacher; the objective must be DistilledVectors.

    Raises ConfigError if the teacher is not set or has another width, and CheckpointError if it cannot be used.
    """
    objective = config.objective
    assert isinstance(objective, DistilledVectors)
    if not objective.teacher:
        raise ConfigError(
            f"{SETTING} is not set: give the embedding model to learn from, such as "
            "hf://sentence-transformers/all-MiniLM-L6-v2"
        )
    loaded = _load(objective.teacher, objective.teacher_prompt)
    described = describe(loaded)
    width = described.dimension
    if objective.teacher_width not in (None, width):
        raise ConfigError(
            f"objective.teacher_width ({objective.teacher_width}) must be the dimension of the vectors of {SETTING} "
            f"{objective.teacher} ({width}): leave objective.teacher_width out"
        )
    report(f"{SETTING}: {_about(objective.teacher, described, config)}")
    teacher = TextTeacher(description=described, prompt=objective.teacher_prompt)
    return replace(config, objective=replace(objective, teacher_width=width)), teacher


def _require_same(found: Description, described: Description) -> None:
    """Raise CheckpointError if a teacher is not the one that the driver described."""
    wanted = asdict(described)
    changed = next((name for name, value in asdict(found).items() if value != wanted[name]), None)
    if changed:
        raise CheckpointError(
            f"{SETTING} {described.checkpoint} has changed since the run began: its {changed.replace('_', ' ')} is "
            f"{asdict(found)[changed]}, and was {wanted[changed]}; restore its files, or start under another --name"
        )


def _load(location: str, prompt: str | None) -> VectorModel:
    """Load the model at a location on the CPU.

    Raises CheckpointError if it is no embedding model, and ConfigError for a prompt that cannot be used.
    """
    try:
        model = load_encoder(location, "cpu")
    except (CheckpointError, ConfigError) as error:
        raise class_of(error)(f"{SETTING} {error}") from error
    trained = model.tuned is not None and KINDS[model.tuned.about.task.kind].makes_vectors
    if not trained and stated_recipe(model.location) is None:
        raise CheckpointError(
            f"{SETTING} {location} has no modules.json, so it does not say how a text becomes a vector: give an "
            "embedding model in the format of sentence-transformers"
        )
    try:
        loaded = VectorModel(model=model, prompt=model.recipe.prompt(prompt), precision="float32")
        loaded.spans([])  # raises ConfigError for a prompt that leaves no room
    except ConfigError as error:
        raise ConfigError(f"{PROMPT}: {error}") from error
    return loaded


def _about(location: str, described: Description, config: Pretrain) -> str:
    """Describe the teacher in one line, with the layer that its width needs."""
    prompt = f", prompt {described.prompt!r}" if described.prompt else ""
    width = config.model.width
    layer = f"; a linear layer maps the student's {width} numbers to these" if width != described.dimension else ""
    read = f"reads at most {described.maximum_length} tokens of a text{prompt}"
    return f"vectors of {location}, {described.dimension} numbers, {described.pooling} pooling, {read}{layer}"
