"""The files of a published BERT, and the tensors in them, however they were saved."""

import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pyarrow import fs
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from pipeline import storage
from pipeline.errors import CheckpointError, ConfigError, PipelineError
from pipeline.local_files import scratch_folder
from pipeline.model.tensor_bundle import read_bundle

CONFIGS = ("config.json", "bert_config.json")
"""Hugging Face's, and google-research/bert's."""
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""One that is there is taken, the first; an index names the files of a checkpoint in several."""
BUNDLE = re.compile(r".*ckpt.*\.index")
MOST_CONFIG, MOST_INDEX = 1 << 24, 1 << 26
"""Bytes of a config, and of an index of several files: those of published models have some thousands."""
COPIES = 2
"""How often the bytes of a file may stand in its tensors: output weights are often the word embeddings again."""
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
    require_owner(location)
    with scratch_folder("published") as temporary:
        try:
            files = files_of(location)
            folder = Path(location if not storage.is_url(location) else fetched(location, files, str(temporary)))
        except PipelineError:
            raise
        except Exception as error:  # file systems and web clients raise kinds of their own
            raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error
        yield folder, files


def require_owner(location: str) -> None:
    """Raise ConfigError for a hub's name without its owner: hf://bert-base-uncased."""
    name = location.removeprefix(storage.HUB).strip("/")
    if location.startswith(storage.HUB) and "/" not in name:
        raise ConfigError(
            f"{location} names no owner: a model of the hub is hf://OWNER/NAME, such as hf://google-bert/{name or 'NAME'}"
        )


def files_of(location: str) -> Files:
    """The files of a folder that count. Raises CheckpointError where config or weights are missing or the folder is damaged."""
    names = storage.children(location)
    config = next((name for name in CONFIGS if name in names), None)
    bundles = [name for name in names if BUNDLE.fullmatch(name)]
    weights = next((name for name in WEIGHTS if name in names), None) or (bundles[-1] if len(bundles) == 1 else None)
    if config is None or weights is None:
        wanted = (
            f"{' or '.join(CONFIGS)}"
            if config is None
            else f"{', '.join(WEIGHTS)} or one TensorFlow checkpoint (*.ckpt.index)"
        )
        instead = (
            f"{storage.join(location, 'export')} has them"
            if "export" in names
            else "give the folder of a published BERT, such as a run's export, or hf://OWNER/NAME of the Hugging Face hub"
        )
        raise CheckpointError(f"{location} has no {wanted}: {instead}")
    if storage.MANIFEST in names and (problem := storage.damage(location)):
        raise CheckpointError(f"{location} is damaged: {problem}")
    others: list[str] = []
    if BUNDLE.fullmatch(weights):
        others = [name for name in names if name.startswith(f"{weights.removesuffix('.index')}.data-")]
    elif weights.endswith(".index.json"):
        others = shards(location, weights, names)
    require_files(location, (config, weights, *others))
    return Files(config=config, weights=weights, parts=(weights, *others))


def require_files(location: str, names: Sequence[str]) -> None:
    """Raise CheckpointError for a name in a folder that is no regular file: a pipe or a device may never end."""
    for name in names:
        system, path = storage.filesystem(storage.join(location, name))
        if storage.with_retries(lambda: system.get_file_info(path)).type != fs.FileType.File:
            raise CheckpointError(f"{storage.join(location, name)} is no regular file")


def require_header(file: Path) -> None:
    """Raise CheckpointError for a safetensors file whose header does not fit its size, which is known before it is read through."""
    if file.suffix != ".safetensors":
        return
    try:
        with safe_open(file, "pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file.name} cannot be read: {storage.first_line(error)}") from error


def shards(location: str, index: str, names: list[str]) -> list[str]:
    """Files that the index of a checkpoint in several names. Raises CheckpointError for one that is not in the folder."""
    try:
        found = sorted(
            set(json_object(storage.read_at_most(storage.join(location, index), MOST_INDEX))["weight_map"].values())
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(
            f"{location}/{index} is no index of weights: weight_map cannot be read ({storage.first_line(error)})"
        ) from error
    if absent := [name for name in found if name not in names]:
        raise CheckpointError(
            f"{location} has no {absent[0]}, which {index} names: fetch all of its {len(found)} files"
        )
    return found


def fetched(location: str, files: Files, folder: str) -> str:
    """Copy the files that count from a URL to a folder, and give it."""
    system, path = storage.filesystem(location)
    for name in (files.config, *files.parts):
        fs.copy_files(
            f"{path}/{name}", f"{folder}/{name}", source_filesystem=system, destination_filesystem=fs.LocalFileSystem()
        )
    return folder


def fingerprint(folder: Path, files: Files) -> str:
    """SHA-256 of the contents of config and weights, in hexadecimal. Raises CheckpointError for weights that cannot be such."""
    for name in files.parts:
        require_header(folder / name)
    return hashlib.sha256(
        json.dumps([[name, storage.sha256(str(folder / name))] for name in (files.config, *files.parts)]).encode()
    ).hexdigest()


def json_object(content: bytes) -> dict[str, Any]:
    """A JSON object. Raises ValueError for anything else."""
    value = storage.parse_json(content)
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__} stands where an object is wanted")
    return value


def read_config(folder: Path, files: Files) -> dict[str, Any]:
    """What the model's config says. Raises CheckpointError when it cannot be read."""
    try:
        return json_object(storage.read_at_most(str(folder / files.config), MOST_CONFIG))
    except (OSError, ValueError) as error:
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
        archive = zipfile.is_zipfile(file)
        if archive:
            require_uncompressed(file)
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=archive)
    except pickle.UnpicklingError as error:
        asked = FORBIDDEN.search(str(error))
        why = f"it asks for {asked[1]}" if asked else "a plain pickle"
        raise CheckpointError(
            f"{file.name} holds more than tensors, and unpickling it could run anything ({why}): save it as safetensors"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{file.name} cannot be read: {storage.first_line(error)}") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise CheckpointError(f"{file.name} is no dictionary of tensors by name: save the model's state_dict")
    require_held(file, found)
    return dict(found)


def require_uncompressed(file: Path) -> None:
    """Raise ValueError for an archive with a compressed member, as torch.save writes none: it could become any size."""
    with zipfile.ZipFile(file) as archive:
        if packed := [member.filename for member in archive.infolist() if member.compress_type != zipfile.ZIP_STORED]:
            raise ValueError(f"{packed[0]} in it is compressed")


def require_held(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError where a file of torch.save does not hold its tensors: their shapes alone may ask for any memory."""
    if odd := [
        name for name, tensor in tensors.items() if tensor.layout != torch.strided or tensor.device.type != "cpu"
    ]:
        raise CheckpointError(f"{file.name}: tensor {odd[0]} is no plain tensor: save the model's state_dict")
    held, wanted = file.stat().st_size, sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if wanted > COPIES * held:
        raise CheckpointError(
            f"{file.name} has {held:,} bytes and its tensors would have {wanted:,}: save each with its own memory"
        )
