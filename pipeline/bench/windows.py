"""Windows to measure on: documents of any source in random order, in Parquet shards of a temporary folder; no Ray."""

import random
from collections.abc import Iterator, Sequence

import pyarrow as pa

from pipeline.config.data import Preparation
from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_documents
from pipeline.corpus.prepared import Corpus, Window
from pipeline.corpus.shards import write_windows
from pipeline.corpus.sources import parse
from pipeline.errors import DataError
from pipeline.text.documents import Document
from pipeline.text.schema import DOCUMENT

SETTINGS = Preparation()


def split_corpora(specs: Sequence[str], folder: str, windows: int) -> tuple[Corpus, Corpus]:
    """Return two corpora of at most the given windows each, from disjoint files: they share no document.

    Raises DataError where the sources are too small for a window each.
    """
    files = [file for spec in specs for file in list_files(parse(spec))]
    random.Random(0).shuffle(files)
    first, second = (_corpus(f"{folder}/{half}", _rows(files[half::2]), windows) for half in range(2))
    return first, second


def _rows(files: Sequence) -> Iterator[dict]:
    """Yield the documents of files as rows of DOCUMENT."""
    for file in files:
        for item in file_documents(file, SETTINGS):
            if isinstance(item, Document):
                yield vars(item) | {"source": file.source}


def _corpus(folder: str, documents: Iterator[dict], windows: int) -> Corpus:
    """Write a corpus of one shard, its documents in random order."""
    held, characters = [], 0
    for row in documents:
        held.append(row)
        characters += len(row["text"])
        if characters >= (windows + 0.5) * SETTINGS.window_characters:
            break
    random.Random(0).shuffle(held)
    report = write_windows(folder, "train", 0, pa.Table.from_pylist(held, schema=DOCUMENT), SETTINGS.window_characters)
    if not report["windows"]:
        raise DataError("corpus: too little text to measure: give more files")
    windows_found = [
        Window(shard=report["file"], row_group=group, documents=d, characters=c)
        for group, (d, c) in enumerate(report["windows"])
    ]
    return Corpus(
        folder=folder,
        fingerprint=report["digest"],
        train=tuple(windows_found[:windows]),
        heldout=(),
        counts={},
        dropped={},
        sources={},
    )
