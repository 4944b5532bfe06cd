"""The words of rows in each kind of vocabulary."""

import re

import numpy as np
import pyarrow as pa
import pytest

from pipeline.audit.rows import TokenTexts, words_as_read, words_of_rows
from pipeline.config.data import Sampling, SingleSegment
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import make_examples
from pipeline.text.ngrams import TextFinder, WordSpans
from pipeline.text.schema import DOCUMENT
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from tests.conftest import text_of

ACCENTS = "Élan, café! The naïve façade: it's déjà vu again"


def spelt(words: WordSpans) -> list[str]:
    return [words.data[a:b].tobytes().decode() for a, b in zip(words.starts, words.stops)]


@pytest.fixture(scope="module", params=["wordpiece", "byte-bpe", "unigram"])
def vocabulary(request: pytest.FixtureRequest) -> Vocabulary:
    texts = [*map(text_of, range(30)), ACCENTS]
    return train_vocabulary(texts, size=400, lowercase=request.param == "wordpiece", kind=request.param)


def test_rows_have_the_words_of_their_documents_also_where_they_are_masked(vocabulary: Vocabulary) -> None:
    rows = [
        {
            "id": f"{number}#0",
            "parent": f"{number}",
            "title": "",
            "text": text_of(number).replace(". ", ".\n", 2),
            "source": "made up",
            "lines_are_sentences": False,
            "language": "en",
        }
        for number in range(6)
    ]
    documents = pa.Table.from_pylist(rows, schema=DOCUMENT)
    sampling = Sampling(maximum_length=32, pairs=SingleSegment())
    examples = make_examples(documents, CachedTokenizer(vocabulary), sampling, seed=0, epoch=0, window=0)
    words, masked = words_of_rows(examples, TokenTexts.of(vocabulary))
    assert len(words.lengths) == examples.num_rows > 6
    for index, row in enumerate(examples.to_pylist()):
        part = slice(words.offsets[index], words.offsets[index + 1])
        text = " ".join(re.findall(r"\w+", text_of(row["document_a"]).lower()))
        assert " ".join(spelt(words)[part]) in text
        assert np.count_nonzero(masked[part]) <= len(row["masked_positions"])
        assert np.count_nonzero(masked[part]) > 0 or {*row["masked_labels"]} == {vocabulary.ids["."]}


def test_a_text_is_found_as_the_vocabulary_has_it(vocabulary: Vocabulary) -> None:
    tokens, tokenizer = TokenTexts.of(vocabulary), CachedTokenizer(vocabulary)
    read, searched = (words_as_read([text], tokenizer, tokens) for text in (ACCENTS, f"Kar mir. {ACCENTS}, kar."))
    assert len(TextFinder(read).find(searched).at) == 1
