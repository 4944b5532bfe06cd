"""Ids of whole corpora against those of `tokenizers` alone. Runs where the environment names them:

CORPORA=books/:dump.xml.bz2 VOCABULARY=vocab.txt pytest -s tests/parity/test_corpora_ids.py
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
from pipeline.text.cached_tokenizer import CachedTokenizer, encode_directly
from pipeline.text.documents import Record
from pipeline.text.sentences import split_sentences
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_loading import load_vocabulary
from tests.data import NEEDS_DATA, needs_data

CORPORA = [spec for spec in os.environ.get("CORPORA", "").split(os.pathsep) if spec]
TEXTS = 5_000
TRAINED_ON = 20
"""Every so many paragraphs."""

KINDS = (
    *("published", "cased", "accents kept", "Chinese in words"),
    *("byte-bpe", "byte-bpe, uncased", "unigram", "unigram, uncased"),
)


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
def trained(kind: str = "wordpiece", lowercase: bool = False) -> Vocabulary:
    """A vocabulary of all languages in the corpora."""
    size = 20_000 if kind == "unigram" else 50_000
    return train_vocabulary(islice(texts(), 0, None, TRAINED_ON), size=size, lowercase=lowercase, kind=kind)


def vocabulary_of(kind: str) -> Vocabulary:
    if kind == "published":
        if "VOCABULARY" not in os.environ:
            pytest.skip(f"{NEEDS_DATA}VOCABULARY in the environment")
        return load_vocabulary(os.environ["VOCABULARY"], lowercase=True)
    if kind in ("byte-bpe", "unigram"):
        return trained(kind)
    if kind.endswith(", uncased"):
        return trained(kind.removesuffix(", uncased"), lowercase=True)
    if kind == "cased":
        return trained()
    if kind == "accents kept":
        return replace(trained(), lowercase=True, strip_accents=False)
    return replace(trained(), chinese_characters=False)


@needs_data("CORPORA")
@pytest.mark.parametrize("kind", ["byte-bpe", "unigram"])
def test_ids_of_sentences_joined_are_those_of_paragraphs(kind: str) -> None:
    """A paragraph with no space between two sentences, as in Chinese, is left out: a piece may lie in both."""
    vocabulary = trained(kind)
    tokenizer = CachedTokenizer(vocabulary)
    every, paragraphs, without_space = texts(), 0, 0
    while lines := [line for text in islice(every, TEXTS) for line in text.split("\n")]:
        kept = [split_sentences(line, keep_spaces=True) for line in lines]
        spaced = [all(sentence[0] == " " for sentence in sentences[1:]) for sentences in kept]
        chosen = [sentences for sentences, fits in zip(kept, spaced, strict=True) if fits]
        every_sentence = [sentence for sentences in chosen for sentence in sentences]
        if not vocabulary.keeps_spaces:
            every_sentence = [sentence.removeprefix(" ") for sentence in every_sentence]
        ids, _ = tokenizer.encode(every_sentence)
        whole, _ = encode_directly(vocabulary.tokenizer(), ["".join(sentences) for sentences in chosen])
        assert np.array_equal(ids, whole)
        paragraphs += len(chosen)
        without_space += len(kept) - len(chosen)
    print(
        f"\n{kind}: {paragraphs:,} paragraphs, the same ids; {without_space:,} with sentences without a space between"
    )
    assert paragraphs


@needs_data("CORPORA")
@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_whole_corpora(kind: str) -> None:
    vocabulary = vocabulary_of(kind)
    cached, tokenizer = CachedTokenizer(vocabulary), vocabulary.tokenizer()
    every, characters = texts(), 0
    while sentences := list(islice(every, TEXTS)):
        for ours, theirs in zip(cached.encode(sentences), encode_directly(tokenizer, sentences), strict=True):
            assert np.array_equal(ours, theirs)
        characters += sum(map(len, sentences))
    print(f"\n{kind}: {characters:,} characters, the same ids")
    assert characters
