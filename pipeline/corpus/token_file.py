"""A file of tokens: the training windows of a prepared corpus, encoded, and its held-out text.

A machine without Ray and without the corpus trains on it. The file is a NumPy archive (.npz). An English word takes
about three bytes.
"""

import io
import json
import multiprocessing
import os
import signal
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import storage
from pipeline.config.data import Sampling
from pipeline.corpus.order import permutation
from pipeline.corpus.prepared import Corpus, Window, read_window
from pipeline.corpus.weights import text_by_language
from pipeline.errors import ConfigError, DataError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import EncodedWindow, encode_window, masked_examples, with_positions
from pipeline.text.schema import DOCUMENT
from pipeline.text.template import Template
from pipeline.text.vocabulary import Vocabulary

VERSION = 1
ARRAYS = ("tokens", "sentence_tokens", "document_sentences", "parents", "window_documents", "window_characters")
"""Arrays of the training windows: the ids of all windows; the tokens of each sentence, the sentences and the parent of
each document; the documents and characters of each window.
"""
SHARD = "heldout.parquet"


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The contents of a file of tokens."""

    vocabulary: Vocabulary
    corpus: str
    """Fingerprint of the corpus."""
    train: tuple[EncodedWindow, ...]
    characters: tuple[int, ...]
    """Characters of each training window."""
    heldout: bytes
    """A Parquet file of the held-out documents (schema DOCUMENT), one row group per window."""
    words: np.ndarray | None
    """float32 (V, width): word embeddings from co-occurrence counts; None if the file has none."""


def _require_plain(corpus: Corpus) -> None:
    """Raise ConfigError if an epoch of the corpus is not each of its documents once, all in one language."""
    weighted = [location for location, weight in corpus.weights.items() if weight != 1]
    if weighted:
        raise ConfigError(f"a file of tokens has each document once, but {weighted[0]} has a weight: leave weight out")
    languages = sorted(text_by_language(corpus))
    if len(languages) > 1:
        raise ConfigError(
            f"a file of tokens has one language, but {corpus.folder} has {', '.join(languages)}: prepare one alone"
        )


def write(
    location: str, corpus: Corpus, tokenizer: CachedTokenizer, windows: int | None = None, words: int | None = None
) -> int:
    """Write the first `windows` training windows (None: all) and the held-out text; return the number of tokens.

    `words` is the width of word embeddings from co-occurrence counts (see `Tokens`), counted in sentences; None: none
    are made. Raises ConfigError if the corpus has weights or several languages.
    """
    _require_plain(corpus)
    train = corpus.train[:windows]
    encoded = [encode_window(read_window(corpus, window), tokenizer) for window in train]
    size = tokenizer.vocabulary.size
    about = {
        "version": VERSION,
        "corpus": corpus.fingerprint,
        "vocabulary": asdict(tokenizer.vocabulary),
    }
    arrays: dict[str, Any] = {
        "tokens": np.concatenate([w.tokens for w in encoded]).astype(np.uint16 if size <= 2**16 else np.int32),
        "sentence_tokens": np.concatenate([np.diff(w.sentence_offsets) for w in encoded]).astype(np.int32),
        "document_sentences": np.concatenate([np.diff(w.document_offsets) for w in encoded]).astype(np.int32),
        "parents": np.concatenate([w.parents for w in encoded]).astype(np.int32),
        "window_documents": np.array([len(w.parents) for w in encoded], np.int32),
        "window_characters": np.array([window.characters for window in train], np.int64),
        "heldout": np.frombuffer(_heldout_of(corpus), np.uint8),
    }
    if words is not None:
        # Imported here because they import Ray and scikit-learn, which readers of a file do not need.
        from pipeline.corpus.embeddings import CHARACTERS
        from pipeline.corpus.vocabulary import first_windows
        from pipeline.text.cooccurrence import cooccurrences, embeddings

        counted = encoded[: len(first_windows(corpus, CHARACTERS))]
        documents = (ids for window in counted for ids in _documents_of(window))
        arrays["words"] = embeddings(cooccurrences(documents, size), words)
    file = io.BytesIO()
    np.savez(file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
    storage.write_bytes(location, file.getvalue())
    return len(arrays["tokens"])


def _documents_of(window: EncodedWindow) -> list[np.ndarray]:
    """Return the ids of each document, int64."""
    ends = window.sentence_offsets[window.document_offsets[1:-1]]
    return np.split(window.tokens.astype(np.int64), ends)


def _heldout_of(corpus: Corpus) -> bytes:
    """Return a Parquet file of the held-out windows, a row group per window."""
    file = io.BytesIO()
    with pq.ParquetWriter(file, DOCUMENT, compression="zstd") as writer:
        for window in corpus.heldout:
            documents = read_window(corpus, window)
            writer.write_table(documents, row_group_size=documents.num_rows)
    return file.getvalue()


def heldout_corpus(tokens: Tokens, folder: str) -> Corpus:
    """Write the held-out text to a folder, and return it as a corpus without training windows."""
    storage.write_bytes(storage.join(folder, SHARD), tokens.heldout)
    with pq.ParquetFile(io.BytesIO(tokens.heldout)) as file:
        windows = tuple(
            Window(shard=SHARD, row_group=group, documents=file.metadata.row_group(group).num_rows, characters=0)
            for group in range(file.metadata.num_row_groups)
        )
    return Corpus(
        folder=folder, fingerprint=tokens.corpus, train=(), heldout=windows, counts={}, dropped={}, sources={}
    )


def unigram_counts_of_tokens(tokens: Tokens, characters: int) -> np.ndarray:
    """Return the occurrences of each vocabulary entry in the first windows with `characters` characters, int64 (V,)."""
    windows = int(np.searchsorted(np.cumsum(tokens.characters), characters)) + 1
    ids = np.concatenate([window.tokens for window in tokens.train[:windows]])
    return np.bincount(ids, minlength=tokens.vocabulary.size)


def read(location: str) -> Tokens:
    """Read a file of tokens. Raises DataError if it cannot be read."""
    try:
        with np.load(io.BytesIO(storage.read_bytes(location)), allow_pickle=False) as file:
            about = json.loads(file["about"].tobytes())
            arrays = {name: file[name] for name in ARRAYS}
            heldout, words = file["heldout"].tobytes(), file.get("words")
        if about["version"] != VERSION:
            raise DataError(
                f"{location} has version {about['version']}, and this program reads {VERSION}: write it again"
            )
        return Tokens(
            vocabulary=_vocabulary_of(about["vocabulary"]),
            corpus=about["corpus"],
            train=tuple(_windows_of(arrays)),
            characters=tuple(arrays["window_characters"].tolist()),
            heldout=heldout,
            words=words,
        )
    except (OSError, EOFError, ValueError, KeyError, TypeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{location} is not a file of tokens ({storage.first_line(error)}): write one with "
            "`python jobs/bench.py tokens`"
        ) from error


def _vocabulary_of(about: dict[str, Any]) -> Vocabulary:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}
    values["template"] = Template(**about["template"])
    return Vocabulary(**values)


def _windows_of(arrays: dict[str, np.ndarray]) -> Iterator[EncodedWindow]:
    """Yield the windows of a file's arrays (ARRAYS)."""
    documents = _offsets(arrays["window_documents"])
    sentences = _offsets(arrays["document_sentences"])
    tokens = _offsets(arrays["sentence_tokens"])
    if [len(sentences) - 1, len(tokens) - 1, len(arrays["tokens"])] != [documents[-1], sentences[-1], tokens[-1]]:
        raise ValueError("its arrays do not fit together")
    for first, last in zip(documents, documents[1:]):
        document_offsets = sentences[first : last + 1]
        sentence_offsets = tokens[document_offsets[0] : document_offsets[-1] + 1]
        yield EncodedWindow(
            tokens=arrays["tokens"][sentence_offsets[0] : sentence_offsets[-1]],
            sentence_offsets=sentence_offsets - sentence_offsets[0],
            document_offsets=document_offsets - document_offsets[0],
            parents=arrays["parents"][first:last],
        )


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def rows_of_window(tokens: Tokens, sampling: Sampling, seed: int, number: int) -> pa.Table:
    """Return the rows (schema ROW) of a window: those that the stream makes, if the file has all training windows.

    `number` counts windows through all epochs.
    """
    epoch, position = divmod(number, len(tokens.train))
    window = int(permutation(seed, epoch, len(tokens.train))[position])
    encoded = tokens.train[window]
    examples = masked_examples(
        replace(encoded, tokens=encoded.tokens.astype(np.int32)),
        tokens.vocabulary,
        sampling,
        seed=seed,
        copy=sampling.copy_of_epoch(epoch),
        window=window,
    )
    return with_positions(examples, epoch, position)


class RowMaker:
    """Makes rows in a process of its own, from a file of tokens.

    The process ends with its parent, and leaves Ctrl-C to the parent.
    """

    rows: ClassVar[Callable[[int], pa.Table]]
    """Function that returns the rows of a window."""

    @classmethod
    def start(cls, location: str, sampling: Sampling, seed: int) -> None:
        """Read the file; called once in each process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_exit_with_parent, daemon=True).start()
        cls.rows = partial(rows_of_window, read(location), sampling, seed)

    @classmethod
    def make(cls, number: int) -> pa.Table:
        """Return the rows of a window; `number` counts windows through all epochs."""
        return cls.rows(number)


def _exit_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
