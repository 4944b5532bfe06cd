"""Make the windows of a bench without Ray: write a source's documents in random order to Parquet shards."""

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
    """Return two corpora of at most `windows` windows each. They are made of different files, so share no document.

    Raises DataError if the sources are too small to give each corpus one window.
    """
    files = [file for spec in specs for file in list_files(parse(spec))]
    random.Random(0).shuffle(files)
    first, second = (_corpus(f"{folder}/{half}", _rows(files[half::2]), windows) for half in range(2))
    return first, second


def _rows(files: Sequence) -> Iterator[dict]:
    """Yield the documents of files as rows of the schema DOCUMENT; dropped documents are left out."""
    for file in files:
        for item in file_documents(file, SETTINGS):
            if isinstance(item, Document):
                yield vars(item) | {"source": file.source}


def _corpus(folder: str, documents: Iterator[dict], windows: int) -> Corpus:
    """Write documents in random order as a corpus of one shard with at most `windows` windows.

    Raises DataError if the documents have too little text for one window.
    """
    held, characters = [], 0
    for row in documents:
        held.append(row)
        characters += len(row["text"])
        if characters >= (windows + 0.5) * SETTINGS.window_characters:
            break
    random.Random(0).shuffle(held)
    report = write_windows(folder, "train", 0, pa.Table.from_pylist(held, schema=DOCUMENT), SETTINGS.window_characters)
    if not report["windows"]:
        raise DataError("corpus: too little text for one window: give more files")
    all_windows = [
        Window(shard=report["file"], row_group=group, documents=documents_in_group, characters=characters_in_group)
        for group, (documents_in_group, characters_in_group) in enumerate(report["windows"])
    ]
    return Corpus(
        folder=folder,
        fingerprint=report["digest"],
        train=tuple(all_windows[:windows]),
        heldout=(),
        counts={},
        dropped={},
        sources={},
    )
