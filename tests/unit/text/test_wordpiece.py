import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.vocabulary import SPECIALS, Vocabulary
from pipeline.text.wordpiece import WordPiece

VOCABULARY = Vocabulary(tokens=(*SPECIALS, "un", "##aff", "##able", "a", "##b", ",", "[", "]", "mask", "力"), lowercase=True)
WORDPIECE = WordPiece(VOCABULARY)


def test_ids_and_offsets_by_hand() -> None:
    ids, offsets = WORDPIECE.encode(["Unaffable, ab", "", "\x00\u200b", "力力 unknown", "[MASK]"])
    assert ids.tolist() == [5, 6, 7, 10, 8, 9, 14, 14, 1, 11, 13, 12]
    assert offsets.tolist() == [0, 6, 6, 6, 9, 12]
    assert (ids.dtype, offsets.dtype) == (np.int32, np.int64)


def test_no_sentences_have_no_ids() -> None:
    ids, offsets = WORDPIECE.encode([])
    assert ids.shape == (0,) and offsets.tolist() == [0]


def test_a_word_of_more_than_100_characters_is_unknown() -> None:
    assert WORDPIECE.encode(["a" + "b" * 99, "a" + "b" * 100])[1].tolist() == [0, 100, 101]


def test_it_can_be_pickled_before_and_after_use() -> None:
    used = WordPiece(VOCABULARY)
    fresh = pickle.dumps(used)
    used.encode(["a"])
    assert pickle.dumps(used) == fresh
    assert pickle.loads(fresh).encode(["ab"])[0].tolist() == [8, 9]


@given(st.lists(st.text(alphabet=st.sampled_from(list("unafbleA, []力é\u00a0\x07#")), max_size=12), max_size=5))
def test_sentences_are_encoded_each_for_itself(sentences: list[str]) -> None:
    ids, offsets = WORDPIECE.encode(sentences)
    for sentence, start, end in zip(sentences, offsets[:-1], offsets[1:]):
        assert ids[start:end].tolist() == VOCABULARY.tokenizer().encode(sentence).ids
