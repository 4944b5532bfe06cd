import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.placement import Placement
from pipeline.text.cached_tokenizer import LONGEST_KEPT, MARK, TABLE_CHUNKS, CachedTokenizer, encode_directly
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(
    tokens=(*SPECIALS, "un", "##aff", "##able", "a", "##b", ",", "[", "]", "mask", "力"), lowercase=True
)
WORDPIECE = CachedTokenizer(VOCABULARY)


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
    used = CachedTokenizer(VOCABULARY)
    fresh = pickle.dumps(used)
    used.encode(["a"])
    assert pickle.dumps(used) == fresh
    assert pickle.loads(fresh).encode(["ab"])[0].tolist() == [8, 9]


@given(st.lists(st.text(alphabet=st.sampled_from(list("unafbleA, []力é\u00a0\x07#")), max_size=12), max_size=5))
def test_sentences_are_encoded_each_for_itself(sentences: list[str]) -> None:
    ids, offsets = WORDPIECE.encode(sentences)
    for sentence, start, end in zip(sentences, offsets[:-1], offsets[1:]):
        assert ids[start:end].tolist() == VOCABULARY.tokenizer().encode(sentence).ids


ANY = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
LIKELY = st.text(
    alphabet=st.sampled_from(list("unafbleUNA, []力一é\u0301\u00a0\x07\x1c\t\r\n#—“\ufffd\u2028\u3000\u200b한İ")),
    max_size=30,
)
LONG = st.builds(lambda word, times, rest: word * times + rest, st.sampled_from("abé力"), st.integers(95, 110), LIKELY)
CASES = {
    "uncased": VOCABULARY,
    "cased": replace(VOCABULARY, lowercase=False),
    "accents kept": replace(VOCABULARY, strip_accents=False),
    "Chinese in words": replace(VOCABULARY, chinese_characters=False),
}


@pytest.mark.parametrize("vocabulary", CASES.values(), ids=CASES.keys())
@given(st.lists(ANY | LIKELY | LONG, max_size=6))
def test_ids_are_those_of_the_tokenizer_for_any_text(vocabulary: Vocabulary, sentences: list[str]) -> None:
    for ours, theirs in zip(
        CachedTokenizer(vocabulary, table_chunks=20).encode(sentences),
        encode_directly(vocabulary.tokenizer(), sentences),
        strict=True,
    ):
        assert ours.tolist() == theirs.tolist()


def test_the_table_starts_anew_when_it_is_full_and_long_chunks_are_not_kept() -> None:
    wordpiece = CachedTokenizer(VOCABULARY, table_chunks=2)
    assert wordpiece.encode(["a b, un"])[0].tolist() == [8, 1, 10, 5] and set(wordpiece.table.entries) == {
        "a ",
        "b",
        ",",
        " ",
        "un",
    }
    assert wordpiece.encode(["ab ab"])[0].tolist() == [8, 9, 8, 9] and set(wordpiece.table.entries) == {"ab ", "ab"}
    wordpiece.encode(["b" * (LONGEST_KEPT + 1)])
    assert set(wordpiece.table.entries) == {"ab ", "ab"}
    for _ in range(9):
        wordpiece.encode(["b" * (LONGEST_KEPT + 1)])
    assert len(wordpiece.table.offsets) - 1 <= 4  # chunks that are not kept count too, up to twice the size


def test_a_process_keeps_one_table_for_a_vocabulary() -> None:
    first, second = CachedTokenizer(VOCABULARY), pickle.loads(pickle.dumps(CachedTokenizer(VOCABULARY)))
    assert first.table is second.table is not CachedTokenizer(CASES["cased"]).table


def test_the_table_has_the_size_of_the_setting() -> None:
    assert Placement().table_chunks == TABLE_CHUNKS


def test_a_text_with_the_separator_of_the_table_has_its_ids() -> None:
    texts = [MARK, f"un{MARK}able", f"{MARK[0]} {MARK[1]} ab", "ab"]
    for ours, theirs in zip(
        CachedTokenizer(VOCABULARY, table_chunks=21).encode(texts),
        encode_directly(VOCABULARY.tokenizer(), texts),
        strict=True,
    ):
        assert ours.tolist() == theirs.tolist()
