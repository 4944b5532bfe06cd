"""Cut texts for a model from a corpus, a text file or Python's docstrings; compute the model's attention on texts."""

import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from pipeline.corpus.builtin import read_docstrings
from pipeline.corpus.prepared import is_prepared, load_corpus, read_window
from pipeline.embed.loaded import LoadedEncoder
from pipeline.errors import ConfigError, DataError
from pipeline.model.encoder import Encoder, initialize
from pipeline.tables import content
from pipeline.text.documents import Record

STANDARD = (
    *("argparse", "decimal", "difflib", "statistics", "textwrap", "threading", "random", "heapq", "typing", "datetime"),
    *("functools", "collections", "logging", "tokenize", "zipfile", "optparse", "doctest", "string", "fractions"),
)
"""Modules of Python's standard library whose docstrings are the default text."""


def random_weights(model: LoadedEncoder) -> LoadedEncoder:
    """Return a model with the same sizes and vocabulary, but with random weights (seed 0)."""
    encoder = Encoder(model.settings, len(model.encoder.embeddings.words.weight))
    initialize(encoder, model.settings.initializer_deviation, torch.Generator().manual_seed(0))
    return replace(model, encoder=encoder.to(model.device).eval(), pretrained=None, tuned=None)


def cut_texts(model: LoadedEncoder, location: str | None, texts: int, length: int, least: int) -> list[str]:
    """Return at most `texts` texts. Each text is the beginning of a document and has at most `length` tokens.

    Texts of fewer than `least` tokens are left out. `length` includes [CLS] and [SEP]. Raises ConfigError if `length`
    is larger than the model's number of positions, and DataError if no text is left.
    """
    if length > model.settings.maximum_positions:
        raise ConfigError(
            f"length ({length}) must be at most {model.settings.maximum_positions}: the model has no more positions"
        )
    cut = (cut_text(model, text, length, least) for text in _documents(location))
    chosen = list(islice((text for text in cut if text is not None), texts))
    if not chosen:
        raise DataError(f"{location or 'the built-in text'} has no text of at least {least} tokens: give longer texts")
    return chosen


def cut_text(model: LoadedEncoder, text: str, length: int, least: int) -> str | None:
    """Return the beginning of a text, cut after at most `length` tokens.

    The beginning is tokenised again. Return None if it then has fewer than `least` or more than `length` tokens.
    """
    spans = model.tokenize(text).spans
    if len(spans) > length:
        text = text[: spans[length - 2, 1]]  # keep length - 1 tokens: [SEP] is the last token
    return text if least <= len(model.tokenize(text).ids) <= length else None


def _documents(location: str | None) -> Iterator[str]:
    """Yield the held-out texts of a corpus, the paragraphs of a text file, or Python's docstrings."""
    if location is None:
        yield from _docstrings()
    elif is_prepared(location):
        corpus = load_corpus(location)
        for window in corpus.heldout:
            yield from read_window(corpus, window)["text"].to_pylist()
    else:
        yield from _joined(content.lines(location))


def _docstrings() -> Iterator[str]:
    for name in STANDARD:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None and Path(spec.origin).suffix == ".py":
            for record in read_docstrings(iter([Path(spec.origin).read_bytes()]), name):
                if isinstance(record, Record):
                    yield " ".join(record.paragraphs)


def _joined(rows: Iterable[str]) -> Iterator[str]:
    """Yield the paragraphs of a file: the lines between blank lines, joined with spaces."""
    paragraph: list[str] = []
    for row in (*rows, ""):
        if row.strip():
            paragraph.append(row.strip())
        elif paragraph:
            yield " ".join(paragraph)
            paragraph = []


def attention_of_texts(model: LoadedEncoder, texts: Iterable[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (attention weights (L, H, T, T), ids (T,)) of each text."""
    for text in texts:
        yield model.attentions(text), model.tokenize(text).ids
