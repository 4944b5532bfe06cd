"""Chunks of long texts: their spans, their lengths, and where they begin."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordPieceTrainer

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


def wordpiece_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = WordPieceTrainer(vocab_size=60, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(TRAINING, trainer)
    return tokenizer


def byte_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TRAINING, BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
    return tokenizer


def unigram_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = UnigramTrainer(vocab_size=60, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(TRAINING, trainer)
    return tokenizer


TRAINING = ["banana bandana ban cabbage cab abacus. Anna and a banana band, abandon", "(aba) ca.ba\n\n abcabcabc"] * 20
TOKENIZERS = {"wordpiece": wordpiece_tokenizer, "bytes": byte_tokenizer, "unigram": unigram_tokenizer}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_chunk_by_itself_has_no_more_tokens_than_the_model_reads(kind: str) -> None:
    tokenizer, draw = TOKENIZERS[kind](), random.Random(5)

    def size(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    texts = ["".join(draw.choices("abcn. \n🙂(", (9, 3, 3, 5, 0.3, gap, 0.2, 0.5, 1), k=90)) for gap in (0, 2) * 60]
    for prompt in ("", "band: "):
        for text, spans in zip(texts, chunk_spans(texts, tokenizer, 8, prompt)):
            pieces = [text[start:end] for start, end in spans]
            assert "".join("".join(pieces).split()) == "".join(text.split())
            assert all(first[1] <= second[0] for first, second in zip(spans, spans[1:]))
            assert max(size(prompt + piece) for piece in pieces) <= 8 + size(prompt)


def test_a_chunk_is_never_empty_and_no_character_is_in_two() -> None:
    tokenizer = byte_tokenizer()
    assert chunk_spans(["cab" + "\n" * 200 + "ban"], tokenizer, 8) == [[(0, 3), (203, 206)]]
    assert chunk_spans(["\n" * 200], tokenizer, 8) == [[(0, 0)]]
    assert chunk_spans(["🙂🙂🙂🙂🙂"], tokenizer, 10) == [[(0, 2), (2, 4), (4, 5)]]


def test_special_tokens_and_the_prompt_leave_less_room() -> None:
    assert room_of(TOKENIZER, 16, "") == 14 and room_of(TOKENIZER, 16, "query: ") == 12
    with pytest.raises(ConfigError, match=r"^prompt \('a b '\) has 2 tokens, which leaves 7 of the model's 11 tokens"):
        room_of(TOKENIZER, 11, "a b ")
