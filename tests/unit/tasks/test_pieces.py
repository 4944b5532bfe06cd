"""Pieces and the characters and words they come from, by hand."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from pipeline.tasks.pieces import AT_ONCE, Pieces, Tokenization
from pipeline.text.splitting import SPECIALS
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary

TOKENIZATION = Tokenization(Vocabulary(tokens=(*SPECIALS, "the", "cafe", "##s", "mask", "[", "]", "."), lowercase=True))


def rows(pieces: Pieces) -> list[tuple[int, int, int, int]]:
    return list(zip(*(array.tolist() for array in (pieces.ids, pieces.starts, pieces.ends, pieces.words))))


def test_characters_are_those_of_the_text_as_it_was_given() -> None:
    """The robot is one character, and no word of the vocabulary.

    An accent that is a character of its own is in no piece where accents are dropped.
    """
    pieces = TOKENIZATION.of_texts(["🤖 Cafés\u00a0the cafe\u0301."])[0]
    assert rows(pieces) == [(1, 0, 1, 0), (6, 2, 6, 1), (7, 6, 7, 1), (5, 8, 11, 2), (6, 12, 16, 3), (11, 17, 18, 4)]


def test_a_word_may_have_no_pieces_and_several_pieces() -> None:
    assert rows(TOKENIZATION.of_words([["Cafés.", "\u200b", "", "the"]])[0]) == [
        (6, 0, 4, 0),
        (7, 4, 5, 0),
        (11, 5, 6, 0),
        (5, 0, 3, 3),
    ]


def test_special_tokens_in_a_text_are_text() -> None:
    assert (
        TOKENIZATION.of_texts(["[MASK]"])[0].ids.tolist()
        == TOKENIZATION.of_words([["[MASK]"]])[0].ids.tolist()
        == [9, 8, 10]
    )


def test_nothing_has_no_pieces() -> None:
    pieces = TOKENIZATION.of_texts([""])[0]
    assert rows(pieces) == [] and {array.dtype for array in (pieces.ids, pieces.starts, pieces.ends, pieces.words)} == {
        np.dtype(np.int32)
    }
    assert TOKENIZATION.of_texts([]) == TOKENIZATION.of_words([]) == []


def test_many_texts_come_in_their_order() -> None:
    texts = ["the " * (place % 5) for place in range(2 * AT_ONCE + 3)]
    assert [len(pieces.ids) for pieces in TOKENIZATION.of_texts(texts)] == [
        place % 5 for place in range(2 * AT_ONCE + 3)
    ]
    assert [len(pieces.ids) for pieces in TOKENIZATION.of_words([text.split() for text in texts])] == [
        place % 5 for place in range(2 * AT_ONCE + 3)
    ]


def test_a_pickle_holds_the_vocabulary_only() -> None:
    TOKENIZATION.of_texts(["the"])
    copy = pickle.loads(pickle.dumps(TOKENIZATION))
    assert vars(copy) == {"vocabulary": TOKENIZATION.vocabulary} and rows(copy.of_texts(["the"])[0]) == [(5, 0, 3, 0)]


@pytest.mark.parametrize("kind", ["byte-bpe", "unigram"])
def test_a_word_alone_has_the_pieces_that_it_has_in_a_text(kind: str) -> None:
    words = ["banana", "split", "banana"]
    vocabulary = train_vocabulary(["banana split"] * 20, size=300, lowercase=True, kind=kind)
    tokenization = Tokenization(vocabulary)
    assert (
        tokenization.of_words([words])[0].ids.tolist()
        == tokenization.of_texts([" " * (kind == "byte-bpe") + " ".join(words)])[0].ids.tolist()
    )


def test_a_published_byte_level_vocabulary_takes_words_as_after_a_space() -> None:
    """RoBERTa's puts no space before a text itself."""
    trained = train_vocabulary(["banana split"] * 20, size=300, lowercase=False, kind="byte-bpe")
    model = json.loads(str(trained.model))
    model["pre_tokenizer"]["add_prefix_space"] = False
    published = replace(trained, model=json.dumps(model))
    tokenization = Tokenization(published)
    ids = [
        pieces.ids.tolist()
        for pieces in (
            *tokenization.of_words([["banana", "split"]]),
            *tokenization.of_texts([" banana split", "banana split"]),
        )
    ]
    assert ids[0] == ids[1] != ids[2]
