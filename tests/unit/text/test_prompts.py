"""Prompts before texts: rows by hand, ids of the whole text, keys without prompts, and the room that they leave."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from pipeline.batch import collate
from pipeline.config.data import GivenPairs, NextSentence, Sampling, TitleParagraph
from pipeline.errors import ConfigError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import make_examples
from pipeline.text.prompts import lines_after_prompts, put_before_texts, room_after_prompts, without_first_spaces
from pipeline.text.schema import DOCUMENT
from pipeline.text.sequences import Sequences
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary_saving import published_tokenizer
from tests.conftest import text_of

PROMPTED = Sampling(
    maximum_length=64, pairs=TitleParagraph(shortest=1), query_prompt="ask: ", document_prompt="passage text: "
)


def documents() -> pa.Table:
    """Titles with one paragraph each; the third title is the second one's paragraph."""
    texts = [(text_of(number)[:20], text_of(number)[20:50].strip()) for number in range(5)]
    texts[2] = (texts[1][1], texts[2][1])
    common = {"source": "", "language": "en", "lines_are_sentences": False}
    rows = [
        common | {"id": f"{number}", "parent": f"{number}", "title": title, "text": text}
        for number, (title, text) in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=DOCUMENT)


def test_prompts_are_put_before_texts_by_hand() -> None:
    """Two rows of ranges (1, 3), (3, 4) and of (0, 2), (4, 6), (2, 3)."""
    sequences = Sequences(
        starts=np.array([1, 3, 0, 4, 2]), ends=np.array([3, 4, 2, 6, 3]), offsets=np.array([0, 2, 5]),
        document_a=np.array([0, 1], np.int32), document_b=np.array([0, 1], np.int32), two_texts=True, negatives=1,
    )  # fmt: skip
    tokens = np.arange(10, 16, dtype=np.int32)
    query, document = np.array([7], np.int32), np.array([8, 9], np.int32)
    whole, found = put_before_texts(tokens, sequences, query, document)
    texts = [whole[start:end].tolist() for start, end in zip(found.starts, found.ends)]
    assert texts == [[7, 11, 12], [8, 9, 13], [7, 10, 11], [8, 9, 14, 15], [8, 9, 12]] and whole.dtype == np.int32
    assert found.offsets.tolist() == [0, 2, 5] and found.negatives == 1
    plain, _ = put_before_texts(tokens, sequences, query[:0], query[:0])
    assert plain.tolist() == [11, 12, 13, 10, 11, 14, 15, 12]


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "unigram"])
@pytest.mark.parametrize("query", ["ask: ", "", "ask:\n", "ask:  "])
def test_rows_have_the_ids_of_prompt_and_text_together(kind: str, query: str) -> None:
    size = 400 if kind == "byte-bpe" else 150
    texts = [*map(text_of, range(30)), "ask: passage text: "] * 2
    vocabulary = train_vocabulary(texts, size=size, lowercase=kind == "wordpiece", kind=kind)
    given, cached = documents(), CachedTokenizer(vocabulary)
    examples = make_examples(given, cached, replace(PROMPTED, query_prompt=query), seed=0, epoch=0, window=0)
    batch = collate(examples)
    bounds = batch.offsets.tolist()
    found = [tuple(batch.ids_T[start:end].tolist()) for start, end in zip(bounds, bounds[1:])]
    whole = Tokenizer.from_str(json.dumps(published_tokenizer(vocabulary, 2)))
    columns = ((query, "title"), ("passage text: ", "text"))
    rows = [tuple(tuple(whole.encode(prompt + row[name]).ids) for prompt, name in columns) for row in given.to_pylist()]
    assert sorted(zip(found[::2], found[1::2])) == sorted(rows)
    unprompted = replace(PROMPTED, query_prompt=None, document_prompt="")
    plain = collate(make_examples(given, cached, unprompted, seed=0, epoch=0, window=0))
    assert plain.tokens < batch.tokens
    if kind == "byte-bpe" and not query.endswith(" "):
        return  # a text has other ids as a title than as a paragraph
    same = [(keys[:, :2].reshape(-1, 1) == keys[:, :2].reshape(1, -1)).tolist() for keys in (batch.keys, plain.keys)]
    assert same[0] == same[1] and sum(map(sum, same[0])) > 10  # a title that is another row's paragraph is known


@pytest.mark.parametrize(("first", "before"), [("", "ask: "), ("ask: ", "")])
def test_one_prompt_puts_no_space_before_the_texts_of_the_other_by_hand(first: str, before: str) -> None:
    """Byte-level BPE without merges: a token per byte. The ranges are "ab", "a" of "ab" and "b" of "ab", with "cd"."""
    vocabulary = train_vocabulary(["ab"], size=261, lowercase=False, kind="byte-bpe")
    tokenizer, prompts = CachedTokenizer(vocabulary), (first, before)
    lines = lines_after_prompts(["ab", "", "cd"], prompts, tokenizer)
    tokens, offsets = tokenizer.encode(lines)
    assert lines == [" ab", "", " cd"] and offsets.tolist() == [0, 3, 3, 6]
    documents = np.zeros(2, np.int32)
    ranges = Sequences(
        starts=np.array([0, 0, 3, 2]), ends=np.array([3, 2, 5, 6]), offsets=np.array([0, 2, 4]),
        document_a=documents, document_b=documents, two_texts=True,
    )  # fmt: skip
    new, found = without_first_spaces(tokens, ranges, lines, offsets, prompts, 8, tokenizer)
    spelt = ["".join(vocabulary.tokens[id] for id in new[a:b]) for a, b in zip(found.starts, found.ends)]
    assert spelt == (["ab", "Ġa", "c", "bĠcd"] if first == "" else ["Ġab", "a", "Ġc", "bĠcd"])
    assert without_first_spaces(tokens, ranges, lines, offsets, ("a: ", "b: "), 8, tokenizer)[1] is ranges


def test_a_text_that_has_more_tokens_without_its_space_is_truncated_by_hand() -> None:
    """The merges are Ġa and Ġab, so " ab" is one token and "ab" is two; a sequence of 5 has room for 3 of a text."""
    vocabulary = train_vocabulary(["x ab y ab z ab w ac"], size=263, lowercase=False, kind="byte-bpe")
    tokenizer, prompts = CachedTokenizer(vocabulary), ("ask: ", "")
    lines = lines_after_prompts(["ab ab ab"], prompts, tokenizer)
    tokens, offsets = tokenizer.encode(lines)
    document = np.zeros(1, np.int32)
    ranges = Sequences(
        starts=np.array([0, 0]), ends=np.array([3, 3]), offsets=np.array([0, 2]), document_a=document,
        document_b=document, two_texts=True,
    )  # fmt: skip
    new, _ = without_first_spaces(tokens, ranges, lines, offsets, prompts, 5, tokenizer)
    assert [vocabulary.tokens[id] for id in new] == ["Ġab", "Ġab", "Ġab", "a", "b", "Ġab"]


def test_hard_negatives_have_the_prompt_of_documents() -> None:
    vocabulary = train_vocabulary([*map(text_of, range(30)), "ask: passage: "], size=150, lowercase=True)
    lines = [text_of(number)[:30].strip() for number in range(4)]
    row = {"id": "1", "parent": "1", "title": "", "text": "\n".join(lines), "source": "", "language": "en"}
    table = pa.Table.from_pylist([row | {"lines_are_sentences": False}], schema=DOCUMENT)
    sampling = replace(PROMPTED, pairs=GivenPairs(negatives=2), document_prompt="passage: ")
    tokenizer = CachedTokenizer(vocabulary)
    batch = collate(make_examples(table, tokenizer, sampling, seed=0, epoch=0, window=0))
    bounds, decoded = batch.offsets.tolist(), []
    for start, end in zip(bounds, bounds[1:]):
        decoded.append("".join(vocabulary.tokens[id].removeprefix("##") for id in batch.ids_T[start + 1 : end - 1]))
    prompts = ("ask:", "passage:", "passage:", "passage:")
    assert decoded == [f"{prompt}{line.lower().replace(' ', '')}" for prompt, line in zip(prompts, lines)]


def test_texts_are_truncated_to_the_room_that_is_left() -> None:
    vocabulary = train_vocabulary([*map(text_of, range(30)), "ask: passage text: "], size=150, lowercase=True)
    short = replace(PROMPTED, maximum_length=32)
    row = {"id": "1", "parent": "1", "title": "kar", "text": text_of(1), "source": "", "language": "en"}
    long = pa.Table.from_pylist([row | {"lines_are_sentences": False}], schema=DOCUMENT)
    batch = collate(make_examples(long, CachedTokenizer(vocabulary), short, seed=0, epoch=0, window=0))
    assert batch.offsets.diff().tolist()[1] == batch.maximum_length == 32
    query, document = np.arange(3), np.arange(5)
    assert room_after_prompts(32, [query, document]) == 27 and room_after_prompts(8, [query[:0]] * 2) == 8
    with pytest.raises(ConfigError) as told:
        room_after_prompts(12, [query, document])
    assert str(told.value) == (
        "sampling.maximum_length (12) leaves 5 tokens for a text after a prompt of 5 tokens (sampling.query_prompt, "
        "sampling.document_prompt): set it to at least 13, or choose shorter prompts"
    )


def test_rows_of_one_text_have_no_prompt() -> None:
    with pytest.raises(ConfigError, match=r"^sampling\.query_prompt \('q: '\) is for rows of two texts, but sampling"):
        Sampling(pairs=NextSentence(), query_prompt="q: ")
    assert Sampling(query_prompt="", document_prompt=None).prompts == ("", "")
