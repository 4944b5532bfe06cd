"""The files of a published BERT, and the tensors in them, however they were saved."""

import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pyarrow import fs
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from pipeline import storage
from pipeline.errors import CheckpointError, PipelineError
from pipeline.local_files import scratch_folder
from pipeline.model.tensor_bundle import read_bundle

CONFIGS = ("config.json", "bert_config.json")
"""Hugging Face's, and google-research/bert's."""
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""One that is there is taken, the first; an index names the files of a checkpoint in several."""
BUNDLE = re.compile(r".*ckpt.*\.index")
FORBIDDEN = re.compile(r"GLOBAL (\S+)")
"""How torch names what a pickle asks for beyond tensors."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """What a folder holds of a published model, by names in it."""

    config: str
    weights: str
    """The file, the index of several, or the index of a TensorFlow checkpoint."""
    parts: tuple[str, ...]
    """All files that hold weights."""


@contextmanager
def published_folder(location: str) -> Iterator[tuple[Path, Files]]:
    """A published model's folder on this machine, fetched where the location is a URL, for as long as the context lasts.

    Raises CheckpointError for what is no such folder, is damaged by its own manifest, or cannot be reached.
    """
    with scratch_folder("published") as temporary:
        try:
            files = files_of(location)
            folder = Path(location if not storage.is_url(location) else fetched(location, files, str(temporary)))
        except PipelineError:
            raise
        except Exception as error:  # file systems and web clients raise kinds of their own
            raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error
        yield folder, files


def files_of(location: str) -> Files:
    """The files of a folder that count. Raises CheckpointError where config or weights are missing or the folder is damaged."""
    names = storage.children(location)
    config = next((name for name in CONFIGS if name in names), None)
    bundles = [name for name in names if BUNDLE.fullmatch(name)]
    weights = next((name for name in WEIGHTS if name in names), None) or (bundles[-1] if len(bundles) == 1 else None)
    if config is None or weights is None:
        wanted = f"{' or '.join(CONFIGS)}" if config is None else f"{', '.join(WEIGHTS)} or one TensorFlow checkpoint (*.ckpt.index)"
        instead = f"{storage.join(location, 'export')} has them" if "export" in names else "give the folder of a published BERT, such as a run's export, or hf://OWNER/NAME of the Hugging Face hub"
        raise CheckpointError(f"{location} has no {wanted}: {instead}")
    if storage.MANIFEST in names and (problem := storage.damage(location)):
        raise CheckpointError(f"{location} is damaged: {problem}")
    if BUNDLE.fullmatch(weights):
        prefix = weights.removesuffix(".index")
        return Files(config=config, weights=weights, parts=(weights, *(name for name in names if name.startswith(f"{prefix}.data-"))))
    if not weights.endswith(".index.json"):
        return Files(config=config, weights=weights, parts=(weights,))
    return Files(config=config, weights=weights, parts=(weights, *shards(location, weights, names)))


def shards(location: str, index: str, names: list[str]) -> list[str]:
    """Files that the index of a checkpoint in several names. Raises CheckpointError for one that is not in the folder."""
    try:
        found = sorted(set(json_object(storage.read_bytes(storage.join(location, index)))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{location}/{index} is no index of weights: weight_map cannot be read ({storage.first_line(error)})") from error
    if absent := [name for name in found if name not in names]:
        raise CheckpointError(f"{location} has no {absent[0]}, which {index} names: fetch all of its {len(found)} files")
    return found


def fetched(location: str, files: Files, folder: str) -> str:
    """Copy the files that count from a URL to a folder, and give it."""
    system, path = storage.filesystem(location)
    for name in (files.config, *files.parts):
        fs.copy_files(f"{path}/{name}", f"{folder}/{name}", source_filesystem=system, destination_filesystem=fs.LocalFileSystem())
    return folder


def fingerprint(folder: Path, files: Files) -> str:
    """SHA-256 of the contents of config and weights, in hexadecimal."""
    return hashlib.sha256(json.dumps([[name, storage.sha256(str(folder / name))] for name in (files.config, *files.parts)]).encode()).hexdigest()


def json_object(content: bytes) -> dict[str, Any]:
    """A JSON object. Raises ValueError for anything else."""
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__} stands where an object is wanted")
    return value


def read_config(folder: Path, files: Files) -> dict[str, Any]:
    """What the model's config says. Raises CheckpointError when it cannot be read."""
    try:
        return json_object((folder / files.config).read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{files.config} cannot be read: {storage.first_line(error)}") from error


def read_weights(folder: Path, files: Files) -> dict[str, Tensor]:
    """All tensors under the names that Hugging Face publishes them by. Raises CheckpointError for a file that holds more than tensors."""
    if BUNDLE.fullmatch(files.weights):
        return read_bundle(folder / files.weights.removesuffix(".index"))
    tensors: dict[str, Tensor] = {}
    for name in files.parts:
        if not name.endswith(".index.json"):
            tensors |= read_safetensors(folder / name) if name.endswith(".safetensors") else read_pickled(folder / name)
    return tensors


def read_safetensors(file: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file."""
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file.name} cannot be read: {storage.first_line(error)}") from error


def read_pickled(file: Path) -> dict[str, Tensor]:
    """Tensors of a file of torch.save, without running what else a pickle may hold."""
    try:
        # Files from before torch 1.6 are no zip archives, and those cannot be mapped.
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except pickle.UnpicklingError as error:
        asked = FORBIDDEN.search(str(error))
        why = f"it asks for {asked[1]}" if asked else "a plain pickle"
        raise CheckpointError(f"{file.name} holds more than tensors, and unpickling it could run anything ({why}): save it as safetensors") from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{file.name} cannot be read: {storage.first_line(error)}") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise CheckpointError(f"{file.name} is no dictionary of tensors by name: save the model's state_dict")
    return dict(found)
