"""A file of tokens: the windows of a prepared corpus, encoded.

A machine with torch and NumPy alone trains on it. The file is a NumPy archive (.npz). An English word takes about three
bytes.
"""

import io
import json
import multiprocessing
import os
import signal
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from pipeline import storage
from pipeline.config.data import Sampling
from pipeline.corpus.order import permutation
from pipeline.errors import DataError
from pipeline.text.encoded_window import EncodedWindow, make_masked_rows
from pipeline.text.encoded_words import EncodedWords
from pipeline.text.masked_rows import MaskedRows
from pipeline.text.template import Template
from pipeline.text.vocabulary import Vocabulary

VERSION = 2
TRAIN, HELDOUT, HELDOUT_WORDS = "train", "heldout", "heldout_words"
"""Parts of the file. TRAIN and HELDOUT have the arrays WINDOW_ARRAYS, named PART_ARRAY; HELDOUT_WORDS
has WORD_ARRAYS."""
WINDOW_ARRAYS = ("tokens", "sentence_tokens", "document_sentences", "parents", "window_documents")
"""The ids of all windows; the tokens of each sentence, the sentences and the parent of each document, the documents of
each window.
"""
WORD_ARRAYS = ("tokens", "word_tokens", "sizes", "sentence_words", "window_sentences")
"""The ids of all words; the tokens and the UTF-8 bytes of each word, the words of each sentence, the sentences of each
window.
"""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The contents of a file of tokens."""

    vocabulary: Vocabulary
    corpus: str
    """Fingerprint of the corpus."""
    train: tuple[EncodedWindow, ...]
    """Training windows; their tokens are uint16 if the vocabulary is small enough, as in `heldout`."""
    characters: tuple[int, ...]
    """Characters of each training window."""
    heldout: tuple[EncodedWindow, ...]
    heldout_words: tuple[EncodedWords, ...]
    """The words of each held-out window."""
    words: np.ndarray | None
    """float32 (V, width): word embeddings from co-occurrence counts; None if the file has none."""


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
            if about["version"] != VERSION:
                raise DataError(
                    f"{location} has version {about['version']}, and this program reads {VERSION}: write it again"
                )
            return Tokens(
                vocabulary=_vocabulary_of(about["vocabulary"]),
                corpus=about["corpus"],
                train=tuple(_windows_of(_arrays(file, TRAIN, WINDOW_ARRAYS))),
                characters=tuple(file["window_characters"].tolist()),
                heldout=tuple(_windows_of(_arrays(file, HELDOUT, WINDOW_ARRAYS))),
                heldout_words=tuple(_words_of(_arrays(file, HELDOUT_WORDS, WORD_ARRAYS))),
                words=file.get("words"),
            )
    except (OSError, EOFError, ValueError, KeyError, TypeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{location} is not a file of tokens ({storage.first_line(error)}): write one with "
            "`python jobs/bench.py tokens`"
        ) from error


def _arrays(file: Any, part: str, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: file[f"{part}_{name}"] for name in names}


def _vocabulary_of(about: dict[str, Any]) -> Vocabulary:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in about.items()}
    values["template"] = Template(**about["template"])
    return Vocabulary(**values)


def _windows_of(arrays: dict[str, np.ndarray]) -> Iterator[EncodedWindow]:
    """Yield the windows of a part with the arrays WINDOW_ARRAYS."""
    documents, sentences, tokens = _nested_offsets(
        arrays["window_documents"], arrays["document_sentences"], arrays["sentence_tokens"], len(arrays["tokens"])
    )
    for first, last in zip(documents, documents[1:]):
        document_offsets = sentences[first : last + 1]
        sentence_offsets = tokens[document_offsets[0] : document_offsets[-1] + 1]
        yield EncodedWindow(
            tokens=arrays["tokens"][sentence_offsets[0] : sentence_offsets[-1]],
            sentence_offsets=sentence_offsets - sentence_offsets[0],
            document_offsets=document_offsets - document_offsets[0],
            parents=arrays["parents"][first:last],
        )


def _words_of(arrays: dict[str, np.ndarray]) -> Iterator[EncodedWords]:
    """Yield the words of each window of a part with the arrays WORD_ARRAYS."""
    sentences, words, tokens = _nested_offsets(
        arrays["window_sentences"], arrays["sentence_words"], arrays["word_tokens"], len(arrays["tokens"])
    )
    for first, last in zip(sentences, sentences[1:]):
        sentence_offsets = words[first : last + 1]
        word_offsets = tokens[sentence_offsets[0] : sentence_offsets[-1] + 1]
        yield EncodedWords(
            tokens=arrays["tokens"][word_offsets[0] : word_offsets[-1]],
            word_offsets=word_offsets - word_offsets[0],
            sentence_offsets=sentence_offsets - sentence_offsets[0],
            sizes=arrays["sizes"][sentence_offsets[0] : sentence_offsets[-1]],
        )


def _nested_offsets(*counts_and_size: Any) -> list[np.ndarray]:
    """Return the offsets of each level of nested runs, of which each level counts the runs of the next.

    The last argument is the number of tokens in all runs. Raises ValueError if the levels do not fit together.
    """
    *counts, size = counts_and_size
    offsets = [np.concatenate([[0], np.cumsum(each, dtype=np.int64)]) for each in counts]
    if [level[-1] for level in offsets] != [*(len(level) - 1 for level in offsets[1:]), size]:
        raise ValueError("its arrays do not fit together")
    return offsets


def rows_of_window(tokens: Tokens, sampling: Sampling, seed: int, number: int) -> MaskedRows:
    """Return the rows of a training window: those that the stream makes, if the file has all training windows.

    `number` counts windows through all epochs.
    """
    epoch, position = divmod(number, len(tokens.train))
    window = int(permutation(seed, epoch, len(tokens.train))[position])
    return make_masked_rows(
        with_int32_tokens(tokens.train[window]),
        tokens.vocabulary,
        sampling,
        seed=seed,
        copy=sampling.copy_of_epoch(epoch),
        window=window,
        position=(epoch, position),
    )


def with_int32_tokens(encoded: EncodedWindow) -> EncodedWindow:
    """Return the window with int32 tokens; those of a file may be uint16."""
    return replace(encoded, tokens=encoded.tokens.astype(np.int32))


class RowMaker:
    """Makes rows in a process of its own, from a file of tokens.

    The process ends with its parent, and leaves Ctrl-C to the parent.
    """

    rows: ClassVar[Callable[[int], MaskedRows]]
    """Function that returns the rows of a window."""

    @classmethod
    def start(cls, location: str, sampling: Sampling, seed: int) -> None:
        """Read the file; called once in each process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_exit_with_parent, daemon=True).start()
        cls.rows = partial(rows_of_window, read(location), sampling, seed)

    @classmethod
    def make(cls, number: int) -> MaskedRows:
        """Return the rows of a window; `number` counts windows through all epochs."""
        return cls.rows(number)


def _exit_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
