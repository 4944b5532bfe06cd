"""A file of tokens: the windows of a prepared corpus, encoded.

A machine without Ray trains on it. The file is an Arrow IPC file, whose record batches are mapped into memory. A record
batch is a window, first those for training, and its rows are documents:

- `parent`: equal numbers for documents of one parent;
- `sentences`: the tokens of each sentence, uint16 if the vocabulary is small enough, else int32;
- `words`: the words of each sentence, split at white space, as their `tokens` and their UTF-8 `bytes`; null in windows
  for training.

If the file has word embeddings, the rows of a last record batch are the entries of the vocabulary, and `embedding` has
their vectors.
"""

import json
import multiprocessing
import os
import signal
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pipeline.config.data import Sampling
from pipeline.corpus.order import permutation
from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.text.added_tokens import AddedToken
from pipeline.text.encoded_window import EncodedWindow
from pipeline.text.encoded_words import EncodedWords
from pipeline.text.example_table import masked_examples, with_positions
from pipeline.text.template import Template
from pipeline.text.vocabulary import Vocabulary

VERSION = 3
ABOUT = b"about"
"""Key of the schema's metadata: JSON with version, corpus, vocabulary, the characters of each training window, and the
number of held-out windows.
"""


@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """A file of tokens. Its windows are read when they are needed (`encoded_window`)."""

    location: str
    vocabulary: Vocabulary
    corpus: str
    """Fingerprint of the corpus."""
    train: tuple[pa.RecordBatch, ...]
    characters: tuple[int, ...]
    """Characters of each training window."""
    heldout: tuple[pa.RecordBatch, ...]
    words: np.ndarray | None
    """float32 (V, width): word embeddings from co-occurrence counts; None if the file has none."""

    def encoded_window(self, window: pa.RecordBatch) -> EncodedWindow:
        """Return a window's sentences. Raises DataError if it is damaged."""
        self._require_sound(window)
        documents = window["sentences"]
        tokens = _ids(documents.values.values)
        if tokens.max(initial=0) >= self.vocabulary.size:
            raise self._damaged("a token is not in the vocabulary")
        return EncodedWindow(
            tokens=tokens,
            sentence_offsets=_offsets(documents.values),
            document_offsets=_offsets(documents),
            parents=np.from_dlpack(window["parent"]),
        )

    def encoded_words(self, window: pa.RecordBatch) -> EncodedWords:
        """Return the words of a held-out window. Raises DataError if it is damaged."""
        self._require_sound(window)
        sentences = window["words"].values
        words = sentences.values
        return EncodedWords(
            tokens=_ids(words.field("tokens").values),
            word_offsets=_offsets(words.field("tokens")),
            sentence_offsets=_offsets(sentences),
            sizes=np.from_dlpack(words.field("bytes")),
        )

    def _require_sound(self, window: pa.RecordBatch) -> None:
        try:
            window.validate(full=True)  # wrong offsets would read other memory
        except pa.ArrowInvalid as error:
            raise self._damaged(storage.first_line(error)) from error

    def _damaged(self, problem: str) -> DataError:
        return DataError(f"{self.location} is damaged ({problem}): write it again with `python jobs/bench.py tokens`")


def _ids(values: pa.Array) -> np.ndarray:
    return np.from_dlpack(values).astype(np.int32)  # unlike to_numpy, from_dlpack does not import pandas


def _offsets(lists: pa.ListArray) -> np.ndarray:
    return np.from_dlpack(lists.offsets).astype(np.int64)


def unigram_counts_of_tokens(tokens: TokenFile, characters: int) -> np.ndarray:
    """Return the occurrences of each vocabulary entry in the first windows with `characters` characters, int64 (V,)."""
    windows = int(np.searchsorted(np.cumsum(tokens.characters), characters)) + 1
    ids = np.concatenate([tokens.encoded_window(window).tokens for window in tokens.train[:windows]])
    return np.bincount(ids, minlength=tokens.vocabulary.size)


def read(location: str) -> TokenFile:
    """Read a file of tokens. Raises DataError if it cannot be read."""
    try:
        file = pa.ipc.open_file(storage.open_mapped(location))
        about = json.loads((file.schema.metadata or {})[ABOUT])
        if about["version"] != VERSION:
            raise DataError(
                f"{location} has version {about['version']}, and this program reads {VERSION}: write it again with "
                "`python jobs/bench.py tokens`"
            )
        batches = tuple(map(file.get_batch, range(file.num_record_batches)))
        train = len(about["characters"])
        windows = train + about["heldout"]
        return TokenFile(
            location=location,
            vocabulary=_vocabulary_of(about["vocabulary"]),
            corpus=about["corpus"],
            train=batches[:train],
            characters=tuple(about["characters"]),
            heldout=batches[train:windows],
            words=_embeddings(batches[windows]) if len(batches) > windows else None,
        )
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise DataError(
            f"{location} is not a file of tokens ({storage.first_line(error)}): write one with "
            "`python jobs/bench.py tokens`"
        ) from error


def _vocabulary_of(about: dict[str, Any]) -> Vocabulary:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}
    values["template"] = Template(**about["template"])
    values["added"] = tuple(AddedToken(**token) for token in about.get("added", ()))
    return Vocabulary(**values)


def _embeddings(entries: pa.RecordBatch) -> np.ndarray:
    return np.from_dlpack(entries["embedding"].values).reshape(entries.num_rows, -1)


def rows_of_window(tokens: TokenFile, sampling: Sampling, seed: int, number: int) -> pa.Table:
    """Return the rows (schema ROW) of a training window: those of the stream, if the file has all training windows.

    `number` counts windows through all epochs.
    """
    epoch, position = divmod(number, len(tokens.train))
    window = int(permutation(seed, epoch, len(tokens.train))[position])
    examples = masked_examples(
        tokens.encoded_window(tokens.train[window]),
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

    tokens: ClassVar[TokenFile]
    seed: ClassVar[int]

    @classmethod
    def start(cls, location: str, seed: int) -> None:
        """Read the file; called once in each process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_exit_with_parent, daemon=True).start()
        cls.tokens, cls.seed = read(location), seed

    @classmethod
    def make(cls, number: int, sampling: Sampling) -> pa.Table:
        """Return the rows of a window; `number` counts windows through all epochs."""
        return rows_of_window(cls.tokens, sampling, cls.seed, number)


def _exit_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
