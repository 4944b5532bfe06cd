"""A prepared corpus: its counts and windows, read from its folder."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.locations import BUILTIN
from pipeline.errors import ConfigError, DataError, PipelineError, StorageUnavailable
from pipeline.files import storage
from pipeline.files.retries import is_transient, with_retries
from pipeline.files.web import WEB
from pipeline.text.schema import DOCUMENT

SPLITS = ("train", "heldout")
COUNTED = ("documents", "pieces", "characters")
"""Counts of each split, and of each source."""
SHARD = re.compile(r"\d{5}-[0-9a-f]{12}\.parquet")
"""Name of a shard's file: its number and the beginning of a digest of its contents."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """One row group of a shard; `shard` is the path of the shard's file relative to the corpus folder."""

    shard: str
    row_group: int
    documents: int
    characters: int


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A prepared corpus: its windows in order, and the counts of its manifest."""

    folder: str
    fingerprint: str
    train: tuple[Window, ...]
    heldout: tuple[Window, ...]
    counts: dict[str, int]
    dropped: dict[str, int]
    sources: dict[str, dict[str, Any]]
    """{location of a source: its options, counts, drops by reason, and length of training text by language}."""

    @property
    def train_characters(self) -> int:
        """Characters of the training text."""
        return sum(window.characters for window in self.train)

    @property
    def formats(self) -> list[str | None]:
        """Formats of the sources, as far as the user named them."""
        return [about["format"] for about in self.sources.values()]

    @property
    def weights(self) -> dict[str, float]:
        """Return {location of a source: mean occurrences per epoch of a document from this source}."""
        return {location: about["weight"] for location, about in self.sources.items()}


def load_corpus(folder: str) -> Corpus:
    """Load the corpus in a folder.

    Raises DataError if the manifest is missing or unreadable, and ConfigError if it does not belong to a corpus.
    """
    try:
        manifest = storage.read_json(storage.join(folder, storage.MANIFEST))
        windows = {
            split: tuple(Window(shard=s, row_group=g, documents=d, characters=c) for s, g, d, c in manifest[split])
            for split in SPLITS
        }
        if outside := next(
            (
                window.shard
                for split_windows in windows.values()
                for window in split_windows
                if storage.escapes_folder(window.shard)
            ),
            None,
        ):
            raise DataError(f"{folder}/{storage.MANIFEST} names {outside!r}, which is outside of the folder")
        about = {name: manifest[name] for name in ("fingerprint", "counts", "dropped", "sources")}
        return Corpus(folder=folder, **about, **windows)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(
            f"{folder} does not hold a prepared corpus ({storage.MANIFEST} is missing): "
            "prepare a corpus in this folder, or name another folder"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable_manifest(folder, error) from error


def unreadable_manifest(folder: str, error: Exception) -> PipelineError:
    """Return the error for an unreadable manifest.

    The message advises deleting the folder only if the folder has shards.
    """
    if not any(SHARD.fullmatch(name) for split in SPLITS for name in storage.children(storage.join(folder, split))):
        return ConfigError(
            f"{folder} holds {storage.MANIFEST}, which does not belong to a prepared corpus: choose another folder"
        )
    return DataError(
        f"{folder}/{storage.MANIFEST} cannot be read ({storage.first_line(error)}): "
        "delete the folder and prepare it again"
    )


def is_prepared(location: str) -> bool:
    """Whether a location is the folder of a prepared corpus."""
    if location == BUILTIN or location.startswith(WEB) or not storage.exists(storage.join(location, storage.MANIFEST)):
        return False
    try:
        return {*SPLITS, "fingerprint"} <= storage.read_json(storage.join(location, storage.MANIFEST)).keys()
    except (OSError, ValueError, AttributeError):
        return False


def current_shards(locations: Iterable[str]) -> list[str]:
    """Return the locations without unused shards.

    A corpus that was prepared again keeps the shards of the previous preparation, for runs that still read them.
    """
    found, used = list(locations), dict[str, set[str]]()
    shards = {location: parts for location in found if (parts := _parts_of_shard(location))}
    for folder in {folder for folder, _ in shards.values()}:
        if is_prepared(folder):
            corpus = load_corpus(folder)
            used[folder] = {window.shard for window in (*corpus.train, *corpus.heldout)}
    superseded = {
        location for location, (folder, shard) in shards.items() if folder in used and shard not in used[folder]
    }
    return [location for location in found if location not in superseded]


def _parts_of_shard(location: str) -> tuple[str, str] | None:
    """Return (corpus folder, path of the shard in the folder) if the location looks like a shard, else None."""
    split_folder, _, name = location.rpartition("/")
    folder, _, split = split_folder.rpartition("/")
    return (folder, f"{split}/{name}") if split in SPLITS and SHARD.fullmatch(name) else None


def read_window(corpus: Corpus, window: Window) -> pa.Table:
    """Read the documents of a window (schema DOCUMENT).

    Raises DataError if the window's shard is missing or damaged, and StorageUnavailable if storage cannot be read now.
    """
    location = storage.join(corpus.folder, window.shard)

    def read() -> pa.Table:
        system, path = storage.filesystem(location)
        with pq.ParquetFile(path, filesystem=system) as file:
            return file.read_row_group(window.row_group).cast(DOCUMENT)

    try:
        return with_retries(read)
    except (OSError, pa.ArrowException, IndexError) as error:
        if is_transient(error) or storage.is_unavailable(location):
            raise StorageUnavailable(
                f"{location} cannot be read now ({storage.first_line(error)}); run the same command again later"
            ) from error
        raise DataError(
            f"{location} cannot be read ({storage.first_line(error)}): delete {corpus.folder} and prepare it again"
        ) from error
