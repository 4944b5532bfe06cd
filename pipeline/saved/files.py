"""Read the files of a published model, and their tensors in every common format."""

import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from pipeline.errors import CheckpointError, ConfigError, PipelineError
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.files.locations import is_url

CONFIGS = ("config.json", "bert_config.json")
"""Config file names of Hugging Face and of google-research/bert."""
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Weight files in order of preference; an index lists the files of a sharded checkpoint."""
TENSORFLOW = re.compile(r".*ckpt.*\.index")
"""Index file of a TensorFlow checkpoint, which is refused."""
MOST_CONFIG, MOST_INDEX = 1 << 24, 1 << 26
"""Size limits in bytes: of a config, and of a sharded checkpoint's index. Published files have a few thousand bytes."""
COPIES = 2
"""Limit for the total size of tensors, as a multiple of their file's size.

The limit is above 1 because output weights often repeat the word embeddings.
"""
FORBIDDEN = re.compile(r"GLOBAL (\S+)")
"""Part of torch's error text if a pickle asks for an object other than a tensor. Group 1 is the object's name."""


class NoModel(CheckpointError):
    """A folder without the config of a model."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files of a published model, by name in its folder."""

    config: str
    weights: str
    """The weight file, or the index of a sharded checkpoint."""
    parts: tuple[str, ...]
    """All weight files: `weights`, and if `weights` is an index, also the files that hold the indexed tensors."""


def require_owner(location: str) -> None:
    """Raise ConfigError for a hub name without its owner, such as hf://bert-base-uncased."""
    name = location.removeprefix(storage.HUB).strip("/")
    if location.startswith(storage.HUB) and "/" not in name:
        raise ConfigError(
            f"{location} names no owner: a model of the hub is hf://OWNER/NAME, "
            f"such as hf://google-bert/{name or 'NAME'}"
        )


def files_of(location: str) -> Files:
    """Return a folder's model files. Raises NoModel without a config, and CheckpointError without weights."""
    names = storage.children(location)
    config = next((name for name in CONFIGS if name in names), None)
    weights = next((name for name in WEIGHTS if name in names), None)
    if weights is None and (bundle := next((name for name in names if TENSORFLOW.fullmatch(name)), None)):
        raise CheckpointError(
            f"{location} has a TensorFlow checkpoint ({bundle}), which is not read: take the model in safetensors, "
            "such as hf://google-bert/bert-base-uncased, or convert it with transformers 4 (from_tf=True)"
        )
    if config is None or weights is None:
        wanted = " or ".join(CONFIGS if config is None else WEIGHTS)
        instead = (
            f"{storage.join(location, 'export')} has them"
            if "export" in names
            else "give the folder of a published model, such as a run's export, "
            "or hf://OWNER/NAME of the Hugging Face hub"
        )
        raise (NoModel if config is None else CheckpointError)(f"{location} has no {wanted}: {instead}")
    others: list[str] = []
    if weights.endswith(".index.json"):
        others = _shards(location, weights, names)
    _require_files(location, (config, weights, *others))
    return Files(config=config, weights=weights, parts=(weights, *others))


def _require_files(location: str, names: Sequence[str]) -> None:
    """Raise CheckpointError if a name is not a regular file. Reading a pipe or a device might never end."""
    for name in names:
        if not storage.is_file(storage.join(location, name)):
            raise CheckpointError(f"{storage.join(location, name)} is not a regular file")


def _require_header(file: Path) -> None:
    """Raise CheckpointError if a safetensors file's header does not match its size. Other formats are not checked."""
    if file.suffix != ".safetensors":
        return
    try:
        with safe_open(file, "pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file.name} cannot be read: {storage.first_line(error)}") from error


def _shards(location: str, index: str, names: list[str]) -> list[str]:
    """Return the files that a sharded checkpoint's index names, sorted by name.

    Raises CheckpointError if the index cannot be read, or if the folder lacks one of the files.
    """
    try:
        shards = sorted(
            set(json_object(storage.read_at_most(storage.join(location, index), MOST_INDEX))["weight_map"].values())
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(
            f"{location}/{index} is not an index of weights: weight_map cannot be read ({storage.first_line(error)})"
        ) from error
    if absent := [name for name in shards if name not in names]:
        raise CheckpointError(
            f"{location} has no {absent[0]}, which {index} names: fetch all {len(shards)} files that the index names"
        )
    return shards


@contextmanager
def on_disk(location: str, files: Files) -> Generator[Path]:
    """Yield a local folder with a model's config and weights; files at a URL are copied to it for as long as needed.

    Raises CheckpointError if they cannot be read.
    """
    if not is_url(location):
        yield Path(location)
        return
    with scratch_folder("published") as temporary:
        for name in (files.config, *files.parts):
            try:
                storage.copy_file(storage.join(location, name), f"{temporary}/{name}")
            except PipelineError:
                raise
            except Exception as error:  # file systems and web clients raise their own exception types
                raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error
        yield Path(temporary)


def digest_of(folder: Path, files: Files) -> str:
    """Return the SHA-256 of config and weights, in hexadecimal. Raises CheckpointError for a bad safetensors header."""
    for name in files.parts:
        _require_header(folder / name)
    return hashlib.sha256(
        json.dumps([[name, storage.sha256(str(folder / name))] for name in (files.config, *files.parts)]).encode()
    ).hexdigest()


def json_object(content: bytes) -> dict[str, Any]:
    """Parse a JSON text that holds an object. Raises ValueError for any other text."""
    value = storage.parse_json(content)
    if not isinstance(value, dict):
        raise ValueError(f"it must be a JSON object, not a {type(value).__name__}")
    return value


def read_config(location: str, files: Files) -> dict[str, Any]:
    """Return the fields of the model's config file. Raises CheckpointError if the file cannot be read."""
    try:
        return json_object(storage.read_at_most(storage.join(location, files.config), MOST_CONFIG))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{files.config} cannot be read: {storage.first_line(error)}") from error


def read_weights(folder: Path, files: Files) -> dict[str, Tensor]:
    """Return all tensors under Hugging Face's names.

    Raises CheckpointError for a file that cannot be read or holds more than tensors.
    """
    tensors: dict[str, Tensor] = {}
    for name in files.parts:
        if not name.endswith(".index.json"):
            tensors |= (
                _read_safetensors(folder / name) if name.endswith(".safetensors") else _read_pickled(folder / name)
            )
    return tensors


def read_shapes(folder: Path, files: Files) -> dict[str, torch.Size]:
    """Return the shapes of all tensors by name. Safetensors files are not read beyond their headers.

    Raises CheckpointError as `read_weights`.
    """
    if not files.weights.endswith((".safetensors", ".safetensors.index.json")):
        return {name: tensor.shape for name, tensor in read_weights(folder, files).items()}
    shapes: dict[str, torch.Size] = {}
    for name in files.parts:
        if name.endswith(".safetensors"):
            _require_header(folder / name)
            with safe_open(folder / name, "pt") as tensors:
                shapes |= {key: torch.Size(tensors.get_slice(key).get_shape()) for key in tensors.keys()}  # noqa: SIM118
    return shapes


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file.name} cannot be read: {storage.first_line(error)}") from error


def _read_pickled(file: Path) -> dict[str, Tensor]:
    """Return the tensors of a torch.save file, without running any code that its pickle asks for."""
    try:
        # Files from before torch 1.6 are not zip archives, and torch can memory-map only zip archives.
        archive = zipfile.is_zipfile(file)
        if archive:
            _require_uncompressed(file)
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=archive)
    except pickle.UnpicklingError as error:
        match = FORBIDDEN.search(str(error))
        why = f"it asks for {match[1]}" if match else "a plain pickle"
        raise CheckpointError(
            f"{file.name} holds more than tensors, and unpickling it could run any code ({why}): save it as safetensors"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{file.name} cannot be read: {storage.first_line(error)}") from error
    if not isinstance(content, dict) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise CheckpointError(f"{file.name} is not a dictionary of tensors by name: save the model's state_dict")
    _require_held(file, content)
    return dict(content)


def _require_uncompressed(file: Path) -> None:
    """Raise ValueError if an archive has compressed files, because their true size is unknown.

    torch.save never compresses.
    """
    with zipfile.ZipFile(file) as archive:
        if packed := [member.filename for member in archive.infolist() if member.compress_type != zipfile.ZIP_STORED]:
            raise ValueError(f"its member {packed[0]} is compressed")


def _require_held(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError if the tensors of a torch.save file need far more memory than the file has bytes.

    A tensor's shape may claim any amount of memory, for example with strides of 0. Tensors that are sparse or not on
    the CPU are refused too.
    """
    if odd := [
        name for name, tensor in tensors.items() if tensor.layout != torch.strided or tensor.device.type != "cpu"
    ]:
        raise CheckpointError(f"{file.name}: tensor {odd[0]} is not a plain tensor: save the model's state_dict")
    held, wanted = file.stat().st_size, sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if wanted > COPIES * held:
        raise CheckpointError(
            f"{file.name} has {held:,} bytes, but its tensors would need {wanted:,} bytes: "
            "save each tensor with its own memory"
        )


def json_fields(location: str, name: str) -> dict[str, Any]:
    """Return the object of a JSON file in a folder; empty if the file is missing."""
    path = storage.join(location, name)
    try:
        return json_object(storage.read_at_most(path, MOST_CONFIG)) if storage.exists(path) else {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {storage.first_line(error)}") from error
