"""Ids of whole corpora against those of `tokenizers` alone. Runs where the environment names them:

CORPORA=books/:dump.xml.bz2 VOCABULARY=vocab.txt pytest -s tests/parity/test_wordpiece_corpora.py
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

from pipeline.corpus.inputs import list_files
from pipeline.corpus.parts import file_records
from pipeline.corpus.sources import parse
from pipeline.text.documents import Record
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.text.wordpiece import WordPiece, encode_directly

CORPORA = [spec for spec in os.environ.get("CORPORA", "").split(os.pathsep) if spec]
TEXTS = 5_000
TRAINED_ON = 20
"""Every so many paragraphs."""


def texts() -> Iterator[str]:
    """Every paragraph of the corpora, before anything is dropped for its quality."""
    for spec in CORPORA:
        for file in list_files(parse(spec)):
            yield from (
                paragraph
                for record in file_records(file)
                if isinstance(record, Record)
                for paragraph in record.paragraphs
            )


@cache
def trained() -> Vocabulary:
    """A cased vocabulary of all languages in the corpora."""
    return train_vocabulary(islice(texts(), 0, None, TRAINED_ON), size=50_000, lowercase=False)


def vocabulary_of(kind: str) -> Vocabulary:
    if kind == "published":
        return (
            load_vocabulary(os.environ["VOCABULARY"], lowercase=True)
            if "VOCABULARY" in os.environ
            else pytest.skip("VOCABULARY names none")
        )
    if kind == "cased":
        return trained()
    if kind == "accents kept":
        return replace(trained(), lowercase=True, strip_accents=False)
    return replace(trained(), chinese_characters=False)


@pytest.mark.skipif(not CORPORA, reason="CORPORA names none")
@pytest.mark.parametrize("kind", ["published", "cased", "accents kept", "Chinese in words"])
def test_ids_of_whole_corpora(kind: str) -> None:
    vocabulary = vocabulary_of(kind)
    wordpiece, tokenizer = WordPiece(vocabulary), vocabulary.tokenizer()
    every, characters = texts(), 0
    while sentences := list(islice(every, TEXTS)):
        for ours, theirs in zip(wordpiece.encode(sentences), encode_directly(tokenizer, sentences), strict=True):
            assert np.array_equal(ours, theirs)
        characters += sum(map(len, sentences))
    print(f"\n{kind}: {characters:,} characters, the same ids")
    assert characters
