"""A file of tokens: the windows of a prepared corpus, encoded.

A machine with torch, NumPy and safetensors alone trains on it. The file is a NumPy archive (.npz). An English word
takes about three bytes.
"""

import io
import json
import multiprocessing
import os
import signal
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from pipeline.config.data import Sampling
from pipeline.corpus.order import permutation
from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.text.added_tokens import AddedToken
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
class TokenFile:
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


def unigram_counts_of_tokens(tokens: TokenFile, characters: int) -> np.ndarray:
    """Return the occurrences of each vocabulary entry in the first windows with `characters` characters, int64 (V,)."""
    windows = int(np.searchsorted(np.cumsum(tokens.characters), characters)) + 1
    ids = np.concatenate([window.tokens for window in tokens.train[:windows]])
    return np.bincount(ids, minlength=tokens.vocabulary.size)


def read(location: str) -> TokenFile:
    """Read a file of tokens. Raises DataError if it cannot be read."""
    try:
        with np.load(io.BytesIO(storage.read_bytes(location)), allow_pickle=False) as file:
            about = json.loads(file["about"].tobytes())
            if about["version"] != VERSION:
                raise DataError(
                    f"{location} has version {about['version']}, and this program reads {VERSION}: write it again"
                )
            return TokenFile(
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
    values["added"] = tuple(AddedToken(**token) for token in about.get("added", ()))
    return Vocabulary(**values)


def _windows_of(arrays: dict[str, np.ndarray]) -> Iterator[EncodedWindow]:
    """Yield the windows of a part with the arrays WINDOW_ARRAYS."""
    levels = [arrays[name] for name in ("window_documents", "document_sentences", "sentence_tokens")]
    for documents, _, document_offsets, sentence_offsets, tokens in _windows_in(*levels, arrays["tokens"]):
        yield EncodedWindow(
            tokens=tokens,
            sentence_offsets=sentence_offsets,
            document_offsets=document_offsets,
            parents=arrays["parents"][documents],
        )


def _words_of(arrays: dict[str, np.ndarray]) -> Iterator[EncodedWords]:
    """Yield the words of each window of a part with the arrays WORD_ARRAYS."""
    levels = [arrays[name] for name in ("window_sentences", "sentence_words", "word_tokens")]
    for _, words, sentence_offsets, word_offsets, tokens in _windows_in(*levels, arrays["tokens"]):
        yield EncodedWords(
            tokens=tokens, word_offsets=word_offsets, sentence_offsets=sentence_offsets, sizes=arrays["sizes"][words]
        )


def _windows_in(
    window_counts: np.ndarray, outer_counts: np.ndarray, inner_counts: np.ndarray, tokens: np.ndarray
) -> Iterator[tuple[slice, slice, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (outer, inner, outer_offsets, inner_offsets, tokens) for each window.

    `window_counts` has the outer units of each window, `outer_counts` the inner units of each outer unit, and
    `inner_counts` the tokens of each inner unit. `outer` and `inner` are the window's units; the offsets begin at 0:
    those of outer units in the window's inner units, and those of inner units in its tokens. Raises ValueError if the
    arrays do not fit together.
    """
    counts = (window_counts, outer_counts, inner_counts)
    windows, outer, inner = (np.concatenate([[0], np.cumsum(each, dtype=np.int64)]) for each in counts)
    if [windows[-1], outer[-1], inner[-1]] != [len(outer_counts), len(inner_counts), len(tokens)]:
        raise ValueError("its arrays do not fit together")
    for first, last in pairwise(windows):
        outer_offsets = outer[first : last + 1]
        start, end = outer_offsets[[0, -1]]
        inner_offsets = inner[start : end + 1]
        yield (
            slice(first, last),
            slice(start, end),
            outer_offsets - start,
            inner_offsets - inner_offsets[0],
            tokens[inner_offsets[0] : inner_offsets[-1]],
        )


def rows_of_window(tokens: TokenFile, sampling: Sampling, seed: int, number: int) -> MaskedRows:
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

    tokens: ClassVar[TokenFile]
    seed: ClassVar[int]

    @classmethod
    def start(cls, location: str, seed: int) -> None:
        """Read the file; called once in each process."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_exit_with_parent, daemon=True).start()
        cls.tokens, cls.seed = read(location), seed

    @classmethod
    def make(cls, number: int, sampling: Sampling) -> MaskedRows:
        """Return the rows of a window; `number` counts windows through all epochs."""
        return rows_of_window(cls.tokens, sampling, cls.seed, number)


def _exit_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
