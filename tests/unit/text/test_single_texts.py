"""Single texts: sentences and runs of sentences by hand, and the strings that a teacher reads."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipeline.batch import collate
from pipeline.config.data import Sampling, Sentences
from pipeline.errors import ConfigError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import encode_texts, make_examples
from pipeline.text.schema import DOCUMENT
from pipeline.text.sequences import Sequences
from pipeline.text.single_texts import sentence_texts, strings_of
from pipeline.text.splitting import SPECIALS
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import published_tokenizer

WINDOWS = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=8), max_size=6)  # documents of sentences of tokens
MAXIMUM = 16


def draw(window: list[list[int]], most: int = 1, seed: int = 0) -> list[tuple[int, int, int]]:
    """Start, end and document of each text."""
    sentences = np.cumsum([0, *(tokens for document in window for tokens in document)]).astype(np.int64)
    documents = np.cumsum([0, *map(len, window)]).astype(np.int64)
    nobody = np.zeros(len(window), int)
    found = sentence_texts(Sentences(most=most), sentences, documents, nobody, MAXIMUM, np.random.default_rng(seed))
    assert found.offsets.tolist() == list(range(len(found) + 1)) and not found.paired and not found.two_texts
    assert found.document_a.tolist() == found.document_b.tolist()
    return list(zip(found.starts.tolist(), found.ends.tolist(), found.document_a.tolist()))


def test_sentences_by_hand() -> None:
    """Sentences of 15 tokens are left out, since 14 are the most, and so are sentences without tokens."""
    assert draw([[3, 0, 14, 15], [2]]) == [(0, 3, 0), (3, 17, 0), (32, 34, 1)]
    assert draw([]) == draw([[0], [20]]) == []


def test_two_sentences_are_joined_within_a_document_if_they_fit_by_hand() -> None:
    """One or two of 6, 7, 8 tokens and of 4: 6 + 7 fit, 7 + 8 do not, and the 4 are another document's."""
    found = {tuple(draw([[6, 7, 8], [4]], 2, seed)) for seed in range(40)}
    end = ((13, 21, 0), (21, 25, 1))
    assert found == {((0, 6, 0), (6, 13, 0), *end), ((0, 13, 0), *end)}


@given(window=WINDOWS, most=st.integers(1, 4), seed=st.integers(0, 99))
def test_every_sentence_that_fits_is_in_one_text(window: list[list[int]], most: int, seed: int) -> None:
    texts = draw(window, most, seed)
    covered = sum(tokens for document in window for tokens in document if tokens <= MAXIMUM - 2)
    assert sum(end - start for start, end, _ in texts) == covered
    assert all(0 < end - start <= MAXIMUM - 2 for start, end, _ in texts)
    assert all(before[1] <= after[0] for before, after in zip(texts, texts[1:]))


def test_rows_have_the_text_that_their_ids_are_of() -> None:
    vocabulary = Vocabulary(tokens=(*SPECIALS, *"abcdefg", "."), lowercase=True)
    common = {"parent": "1", "title": "", "source": "", "language": "en", "lines_are_sentences": True}
    rows = [common | {"id": "1", "text": "A b.\nC\n\nd e f."}, common | {"id": "2", "text": "g"}]
    documents = pa.Table.from_pylist(rows, schema=DOCUMENT)
    sampling = Sampling(maximum_length=8, pairs=Sentences(most=2))
    assert sampling.with_text and not sampling.masks and sampling.sequences == 1
    seen = set()
    for epoch in range(20):
        examples = make_examples(documents, CachedTokenizer(vocabulary), sampling, seed=1, epoch=epoch, window=0)
        batch = collate(examples)
        assert batch.texts == tuple(examples["text"].to_pylist()) and batch.masked == 0
        for text, ids in zip(examples["text"].to_pylist(), examples["ids"].to_pylist()):
            spelt = "".join(vocabulary.tokens[id] for id in ids[1:-1])
            assert spelt == text.lower().replace(" ", "") and (ids[0], ids[-1]) == (2, 3)
        seen |= set(batch.texts)
    assert seen == {"A b.", "A b. C", "C", "C d e f.", "d e f.", "g"}


def test_strings_with_their_own_spaces_are_not_joined_by_more() -> None:
    documents = np.zeros(2, np.int32)
    ranges = Sequences(
        starts=np.array([0, 3]), ends=np.array([3, 5]), offsets=np.arange(3), document_a=documents, document_b=documents
    )
    assert strings_of(["ab", " c", " d"], np.array([0, 2, 3, 5]), ranges, keep_spaces=True) == ["ab c", "d"]


@pytest.mark.parametrize("most", [1, 3])
def test_ids_in_byte_level_bpe_are_those_of_the_text_as_embed_reads_it(most: int) -> None:
    """A text may begin within a line, and may go on in the next line."""
    sentences = ("One cat sat.", "Two dogs ran.", "Three cats slept.")
    vocabulary = train_vocabulary(sentences * 9, size=320, lowercase=False, kind="byte-bpe")
    common = {"id": "1", "parent": "1", "title": "", "source": "", "language": "en", "lines_are_sentences": False}
    row = common | {"text": f"{sentences[0]} {sentences[1]}\n{sentences[2]}"}
    sampling = Sampling(maximum_length=64, pairs=Sentences(most=most))
    whole = Tokenizer.from_str(json.dumps(published_tokenizer(vocabulary, 1)))
    seen = set()
    for epoch in range(12):
        documents = pa.Table.from_pylist([row], schema=DOCUMENT)
        examples = make_examples(documents, CachedTokenizer(vocabulary), sampling, seed=1, epoch=epoch, window=0)
        for text, ids in zip(examples["text"].to_pylist(), examples["ids"].to_pylist()):
            assert ids == whole.encode(text).ids
            seen.add(text)
    assert set(sentences) <= seen and (" ".join(sentences) in seen) == (most == 3)


def test_a_text_that_has_more_tokens_alone_is_truncated() -> None:
    """The 261 bytes of the vocabulary are its tokens: 7 of "Two dog", of which 8 - 2 fit."""
    vocabulary = train_vocabulary(["ab"], size=261, lowercase=False, kind="byte-bpe")
    documents = np.zeros(2, np.int32)
    texts = Sequences(
        starts=np.array([0, 6]), ends=np.array([6, 7]), offsets=np.arange(3), document_a=documents, document_b=documents
    )
    tokens, found = encode_texts(["Two dog", "b"], texts, 8, CachedTokenizer(vocabulary))
    assert (found.starts.tolist(), found.ends.tolist(), len(tokens)) == ([0, 7], [6, 8], 8)


def test_a_text_of_no_sentences_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^sampling\.pairs\.most \(0\) must be at least 1$"):
        Sentences(most=0)
