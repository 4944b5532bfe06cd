"""Write a file of tokens (token_file.py) from a prepared corpus."""

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.training import EVALUATED_WINDOWS
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.corpus.token_file import HELDOUT, HELDOUT_WORDS, TRAIN, VERSION
from pipeline.corpus.weights import text_by_language
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.encoded_window import EncodedWindow
from pipeline.text.encoded_words import EncodedWords, encode_words
from pipeline.text.examples import encode_window, window_sentences


def save_tokens(
    location: str, corpus: Corpus, tokenizer: CachedTokenizer, windows: int | None = None, words: int | None = None
) -> int:
    """Write the first `windows` training windows (None: all) and the held-out windows that evaluations read.

    Return the number of tokens of the training windows. `words` is the width of word embeddings from co-occurrence
    counts (see `TokenFile`), counted in sentences; None: none are made. Raises ConfigError if the corpus has weights or
    several languages.
    """
    _require_plain(corpus)
    train = corpus.train[:windows]
    encoded = [encode_window(read_window(corpus, window), tokenizer) for window in train]
    texts = [read_window(corpus, window) for window in corpus.heldout[:EVALUATED_WINDOWS]]
    heldout = [encode_window(documents, tokenizer) for documents in texts]
    heldout_words = [_encoded_words(documents, tokenizer) for documents in texts]
    size = tokenizer.vocabulary.size
    about = {"version": VERSION, "corpus": corpus.fingerprint, "vocabulary": asdict(tokenizer.vocabulary)}
    kind = np.uint16 if size <= 2**16 else np.int32
    arrays: dict[str, Any] = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "window_characters": np.array([window.characters for window in train], np.int64),
        **{f"{TRAIN}_{name}": values for name, values in _window_arrays(encoded, kind).items()},
        **{f"{HELDOUT}_{name}": values for name, values in _window_arrays(heldout, kind).items()},
        **{f"{HELDOUT_WORDS}_{name}": values for name, values in _word_arrays(heldout_words, kind).items()},
    }
    if words is not None:
        # Imported here because they import Ray and scikit-learn, which a file without word embeddings does not need.
        from pipeline.corpus.embeddings import CHARACTERS
        from pipeline.corpus.vocabulary import first_windows
        from pipeline.text.cooccurrence import cooccurrences, embeddings

        counted = encoded[: len(first_windows(corpus, CHARACTERS))]
        documents = (ids for window in counted for ids in _documents_of(window))
        arrays["words"] = embeddings(cooccurrences(documents, size), words)
    file = io.BytesIO()
    np.savez(file, **arrays)
    storage.write_bytes(location, file.getvalue())
    return sum(len(window.tokens) for window in encoded)


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


def _encoded_words(documents: pa.Table, tokenizer: CachedTokenizer) -> EncodedWords:
    sentences, _ = window_sentences(documents)
    return encode_words([sentence.split() for sentence in sentences], tokenizer)


def _window_arrays(windows: Sequence[EncodedWindow], kind: type[np.generic]) -> dict[str, np.ndarray]:
    """Return the arrays WINDOW_ARRAYS; ids have the type `kind`."""
    return {
        "tokens": _joined([window.tokens for window in windows], kind),
        "sentence_tokens": _joined([np.diff(window.sentence_offsets) for window in windows]),
        "document_sentences": _joined([np.diff(window.document_offsets) for window in windows]),
        "parents": _joined([window.parents for window in windows]),
        "window_documents": np.array([len(window.parents) for window in windows], np.int32),
    }


def _word_arrays(windows: Sequence[EncodedWords], kind: type[np.generic]) -> dict[str, np.ndarray]:
    """Return the arrays WORD_ARRAYS; ids have the type `kind`."""
    return {
        "tokens": _joined([words.tokens for words in windows], kind),
        "word_tokens": _joined([np.diff(words.word_offsets) for words in windows]),
        "sizes": _joined([words.sizes for words in windows]),
        "sentence_words": _joined([np.diff(words.sentence_offsets) for words in windows]),
        "window_sentences": np.array([len(words.sentence_offsets) - 1 for words in windows], np.int32),
    }


def _joined(arrays: Sequence[np.ndarray], kind: type[np.generic] = np.int32) -> np.ndarray:
    """Return the arrays one after another, as numbers of the type `kind`; empty without arrays."""
    return np.concatenate([np.zeros(0, kind), *(values.astype(kind) for values in arrays)])


def _documents_of(window: EncodedWindow) -> list[np.ndarray]:
    """Return the ids of each document, int64."""
    ends = window.sentence_offsets[window.document_offsets[1:-1]]
    return np.split(window.tokens.astype(np.int64), ends)
