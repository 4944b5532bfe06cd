"""Chunks of long texts: their spans, their lengths, and where they begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from pipeline.embed.chunks import chunk_spans, room_of
from pipeline.errors import ConfigError


def words_tokenizer() -> Tokenizer:
    """A tokenizer whose tokens are words and runs of punctuation."""
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return tokenizer


TOKENIZER = words_tokenizer()


def cut(text: str, room: int) -> list[str]:
    (spans,) = chunk_spans([text], TOKENIZER, room)
    return [text[start:end] for start, end in spans]


def test_a_short_text_is_one_chunk_with_all_of_its_characters() -> None:
    assert chunk_spans([" one two  ", ""], TOKENIZER, 3) == [[(0, 10)], [(0, 0)]]


def test_a_chunk_ends_at_the_last_sentence_in_its_second_half() -> None:
    assert cut("a b c d. e f g h i", 7) == ["a b c d.", "e f g h i"]
    assert cut("a b c d\ne f g h i", 7) == ["a b c d", "e f g h i"]
    assert cut("a b c 'd.' e f g h i", 8) == ["a b c 'd.'", "e f g h i"]


def test_without_such_a_sentence_it_ends_between_words() -> None:
    assert cut("a. b c d e f g h i", 7) == ["a. b c d e f", "g h i"]
    assert cut("a b c d-e f", 5) == ["a b c", "d-e f"]  # tokens: a b c d - e f


def test_a_word_that_is_longer_than_a_chunk_is_cut() -> None:
    assert cut("a-b-c-d", 3) == ["a-b", "-c-", "d"]


@given(st.text(alphabet="ab .\n-é", max_size=80), st.integers(1, 9))
def test_chunks_hold_all_but_white_space_in_order_and_are_short_enough(text: str, room: int) -> None:
    (spans,) = chunk_spans([text], TOKENIZER, room)
    assert "".join("".join(text[start:end].split()) for start, end in spans) == "".join(text.split())
    assert all(first[1] <= second[0] for first, second in zip(spans, spans[1:]))
    assert all(len(TOKENIZER.encode(text[s:e], add_special_tokens=False).ids) <= room for s, e in spans)


def test_special_tokens_and_the_prompt_leave_less_room() -> None:
    assert room_of(TOKENIZER, 16, "") == 14 and room_of(TOKENIZER, 16, "query: ") == 12
    with pytest.raises(ConfigError, match=r"^prompt \('a b '\) has 2 tokens, which leaves 7 of the model's 11 tokens"):
        room_of(TOKENIZER, 11, "a b ")
