"""Write a file of tokens (token_file.py) from a prepared corpus."""

import json
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from pipeline.config.training import EVALUATED_WINDOWS
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.corpus.token_file import ABOUT, VERSION
from pipeline.corpus.weights import text_by_language
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.encoded_window import EncodedWindow
from pipeline.text.examples import encode_window, encode_words, window_sentences


def save_tokens(
    location: str, corpus: Corpus, tokenizer: CachedTokenizer, windows: int | None = None, words: int | None = None
) -> int:
    """Write the first `windows` training windows (None: all) and the held-out windows that evaluations read.

    Return the number of tokens of the training windows. `words` is the width of word embeddings from co-occurrence
    counts (see `TokenFile`), counted in sentences; None: none are made. Raises ConfigError if the corpus has weights or
    several languages.
    """
    _require_plain(corpus)
    train, heldout = corpus.train[:windows], corpus.heldout[:EVALUATED_WINDOWS]
    vocabulary = tokenizer.vocabulary
    about = {
        "version": VERSION,
        "corpus": corpus.fingerprint,
        "vocabulary": asdict(vocabulary),
        "characters": [window.characters for window in train],
        "heldout": len(heldout),
    }
    schema = _schema(pa.uint16() if vocabulary.size <= 2**16 else pa.int32(), {ABOUT: json.dumps(about)})
    encoded = [encode_window(read_window(corpus, window), tokenizer) for window in train]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as file:
        for window in encoded:
            file.write_batch(_window_batch(schema, window))
        for documents in (read_window(corpus, window) for window in heldout):
            file.write_batch(_window_batch(schema, encode_window(documents, tokenizer), _words(documents, tokenizer)))
        if words is not None:
            # Imported here because they import Ray and scikit-learn, which files without word embeddings do not need.
            from pipeline.corpus.embeddings import CHARACTERS
            from pipeline.corpus.vocabulary import first_windows
            from pipeline.text.cooccurrence import cooccurrences, embeddings

            counted = encoded[: len(first_windows(corpus, CHARACTERS))]
            texts = (ids for window in counted for ids in _documents_of(window))
            vectors = embeddings(cooccurrences(texts, vocabulary.size), words)
            offsets = np.arange(0, vectors.size + 1, words)
            file.write_batch(_batch(schema, len(vectors), embedding=_lists(offsets, pa.array(vectors.ravel()))))
    storage.write_bytes(location, sink.getvalue())
    return sum(len(window.tokens) for window in encoded)


def _schema(ids: pa.DataType, metadata: dict[bytes, str]) -> pa.Schema:
    """Return the columns of a file (token_file.py)."""
    word = pa.struct([("tokens", pa.list_(ids)), ("bytes", pa.int32())])
    return pa.schema(
        {
            "parent": pa.int32(),
            "sentences": pa.list_(pa.list_(ids)),
            "words": pa.list_(pa.list_(word)),
            "embedding": pa.list_(pa.float32()),
        },
        metadata,
    )


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


def _words(documents: pa.Table, tokenizer: CachedTokenizer) -> pa.ListArray:
    """Return the words of each document's sentences: the column `words`."""
    sentences, document_offsets = window_sentences(documents)
    encoded = encode_words([sentence.split() for sentence in sentences], tokenizer)
    tokens = _lists(encoded.word_offsets, pa.array(encoded.tokens))
    words = pa.StructArray.from_arrays([tokens, pa.array(encoded.sizes)], ["tokens", "bytes"])
    return _lists(document_offsets, _lists(encoded.sentence_offsets, words))


def _window_batch(schema: pa.Schema, window: EncodedWindow, words: pa.Array | None = None) -> pa.RecordBatch:
    """Return a window as a record batch."""
    sentences = _lists(window.document_offsets, _lists(window.sentence_offsets, pa.array(window.tokens)))
    return _batch(schema, len(window.parents), parent=pa.array(window.parents), sentences=sentences, words=words)


def _batch(schema: pa.Schema, rows: int, **columns: pa.Array | None) -> pa.RecordBatch:
    """Return a record batch of these columns; the others are null."""
    given = [columns.get(field.name) for field in schema]
    arrays = [
        pa.nulls(rows, field.type) if array is None else array.cast(field.type) for field, array in zip(schema, given)
    ]
    return pa.record_batch(arrays, schema)


def _lists(offsets: np.ndarray, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _documents_of(window: EncodedWindow) -> list[np.ndarray]:
    """Return the ids of each document, int64."""
    ends = window.sentence_offsets[window.document_offsets[1:-1]]
    return np.split(window.tokens.astype(np.int64), ends)
