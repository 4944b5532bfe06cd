"""A model on disk: what its small files say, and its weights, which are read on demand.

`open_saved` is the only way from a location to a model: of a folder, a URL or the hub, written by this package or by
others. Its messages begin with the location; callers put the name of their setting before it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pipeline.config.model import Model
from pipeline.errors import CheckpointError, PipelineError
from pipeline.files import storage
from pipeline.files.encoder_folder import encoder_folder
from pipeline.model.weights import model_settings
from pipeline.saved.checkpoints import CARD, CONFIG, GENERATOR, TASK
from pipeline.saved.files import (
    MOST_CONFIG,
    Files,
    NoModel,
    digest_of,
    files_of,
    json_object,
    on_disk,
    read_config,
    read_shapes,
    read_weights,
    require_owner,
)
from pipeline.saved.run import OfRun, run_of_checkpoint
from pipeline.saved.tensors import errors_with_location
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary_as_published

if TYPE_CHECKING:
    from pipeline.saved.recipe import VectorRecipe


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    """A model on disk. Pickled, it has neither tensors nor what was read on demand, so it can be sent to workers."""

    location: str
    """Folder, URL or hf://OWNER/NAME."""
    folder: str
    """Folder or URL of config and weights: the location, or its subfolder that sentence-transformers wrote."""
    files: Files
    config: dict[str, Any]
    """Fields of the config file."""
    has_manifest: bool
    """Whether the folder has a manifest, as all folders have that this package wrote."""
    has_record: bool
    """Whether the folder has the record of a task, as fine-tuned models of this package have."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def head(self) -> str | None:
        """Class name under `architectures` in the config, which identifies the model's head; None if it is missing."""
        return head_of(self.config)

    @cached_property
    def settings(self) -> Model:
        """The model's settings, from its config. Raises CheckpointError for an architecture that cannot be loaded."""
        return errors_with_location(self.location, model_settings, self.config)

    @cached_property
    def record(self) -> dict[str, Any]:
        """Contents of task.json, which `fine_tuned` turns into a task. Raises CheckpointError if it cannot be read."""
        try:
            return json_object(storage.read_at_most(storage.join(self.location, TASK), MOST_CONFIG))
        except (OSError, ValueError) as error:
            raise unusable_record(self.location, error) from error

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary in the model's folder. Raises ConfigError or DataError if it is missing or cannot be used."""
        return load_vocabulary_as_published(self.location)

    @cached_property
    def origin(self) -> OfRun | None:
        """The run that the model is a checkpoint of; None for a published model."""
        return run_of_checkpoint(self.location)

    @cached_property
    def recipe(self) -> "VectorRecipe | None":
        """The recipe for a text's vector in the model's files; None if they do not state one."""
        from pipeline.saved.recipe import stated_recipe  # only what computes vectors needs it

        return stated_recipe(self.location)

    @cached_property
    def generator(self) -> "SavedModel | None":
        """ELECTRA's generator, which this package saves beside the discriminator; None if there is none."""
        if GENERATOR not in storage.children(self.folder):
            return None
        return open_saved(storage.join(self.folder, GENERATOR))

    @contextmanager
    def fetched(self) -> "Generator[SavedModel]":
        """Yield the model with config and weights in a local folder, so that a model at a URL is copied only once."""
        with on_disk(self.folder, self.files) as folder:
            yield replace(self, folder=str(folder))

    def digest(self) -> str:
        """Return the SHA-256 of config and weights, in hexadecimal."""
        with on_disk(self.folder, self.files) as folder:
            return errors_with_location(self.location, digest_of, folder, self.files)

    def shapes(self) -> dict[str, torch.Size]:
        """Return the shapes of the weights by published name, without reading the tensors of safetensors files."""
        with on_disk(self.folder, self.files) as folder:
            return errors_with_location(self.location, read_shapes, folder, self.files)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights by published name, as they are saved. Raises CheckpointError if they cannot be read."""
        with on_disk(self.folder, self.files) as folder:
            return errors_with_location(self.location, read_weights, folder, self.files)


def open_saved(location: str, *, verify: bool = True) -> SavedModel:
    """Open a model on disk. `verify` false: its files were just compared with its manifest, or need not be.

    Raises NoModel if there is no model, CheckpointError if it is damaged or cannot be read, and ConfigError for a hub
    name without its owner.
    """
    require_owner(location)
    try:
        names = storage.children(location)
        verify = verify and storage.MANIFEST in names
        if verify and TASK in names:
            _require_undamaged(location)
        folder = encoder_folder(location)
        files = files_of(folder)
        if verify and TASK not in names:
            _require_undamaged(location)
        config = errors_with_location(location, read_config, folder, files)
    except NoModel as error:
        if TASK not in names:
            raise
        # A fine-tuned model without its config is damaged, not another kind of folder.
        raise CheckpointError(f"{location} is damaged: {CONFIG} is missing") from error
    except PipelineError:
        raise
    except Exception as error:  # file systems and web clients raise their own exception types
        raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error
    return SavedModel(
        location=location,
        folder=folder,
        files=files,
        config=config,
        has_manifest=storage.MANIFEST in names,
        has_record=TASK in names,
    )


def _require_undamaged(location: str) -> None:
    """Raise CheckpointError if the files at a location are not those of its manifest. Its card may be edited."""
    if problem := storage.damage(location, {CARD}):
        raise CheckpointError(f"{location} is damaged: {problem}")


@contextmanager
def errors_of(setting: str) -> Generator[None]:
    """Put the setting that holds a location before the messages of CheckpointErrors, which begin with the location."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{setting} {error}") from error


def unusable_record(location: str, error: Exception) -> CheckpointError:
    """Return the error for a task.json that cannot be used."""
    return CheckpointError(f"{location}: {TASK} cannot be used ({type(error).__name__}: {storage.first_line(error)})")


def head_of(config: dict[str, Any]) -> str | None:
    """Return the first name under `architectures` in a config; None if there is none."""
    named = config.get("architectures")
    first = named[0] if isinstance(named, list) and named else named
    return first if isinstance(first, str) else None
