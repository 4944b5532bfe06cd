import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.sketches import (
    BASE,
    COMMON,
    INVERSE,
    LARGEST,
    casing,
    hash_words,
    sample_hashes,
    shingle_hashes,
    shingles,
    size_class,
)

WORDS = [f"word{number}" for number in range(4000)]


def sketch(text: str) -> np.ndarray:
    return sample_hashes(shingle_hashes(text))


def word_hashes(text: str) -> np.ndarray:
    return hash_words(np.frombuffer(text.encode(), np.uint8))


def test_words_are_hashed_wherever_they_stand() -> None:
    cat, sat, again = word_hashes("cat sat, cat")
    assert cat == again != sat
    assert word_hashes("xx (cat)").tolist() == word_hashes("xx").tolist() + [cat]
    assert word_hashes("力加").tolist() == [*word_hashes("力"), *word_hashes("加")]
    assert len(word_hashes("")) == len(word_hashes(" … — ., ")) == 0
    assert BASE * INVERSE % 2**64 == 1


def test_a_shingle_is_eight_words_in_their_order() -> None:
    hashes = word_hashes("a b c d e f g h i")
    assert len(shingles(hashes)) == 2 and len(shingles(hashes[:7])) == 0
    assert shingles(hashes)[0] == shingles(hashes[:8])[0] != shingles(hashes[:8][::-1].copy())[0]


def test_case_punctuation_and_line_breaks_make_no_difference() -> None:
    a = "The quick brown fox — “jumps” over the lazy dog’s tail and runs away."
    b = "the quick  brown\nfox, jumps over THE lazy dog's tail (and runs) away"
    assert len(sketch(a)) == 7 and (sketch(a) == sketch(b)).all()
    assert not np.isin(sketch(a), sketch(a.replace("lazy", "busy"))).all()


def test_of_a_long_text_an_eighth_is_sampled_and_of_a_short_one_all() -> None:
    long = " ".join(WORDS)
    assert 420 < len(sketch(long)) < 580 and (sketch(long) < COMMON).all()
    assert len(sketch(" ".join(WORDS[:30]))) == 23
    assert 16 <= len(sketch(" ".join(WORDS[:300]))) <= 50


def test_the_sketch_of_a_part_is_in_that_of_the_whole() -> None:
    whole, part = sketch(" ".join(WORDS)), sketch(" ".join(WORDS[1000:3000]))
    assert len(part) > 30 and np.isin(part, whole).all()
    assert 0.3 < np.isin(whole, part).mean() < 0.7


def test_whatever_its_length_a_text_has_all_its_hashes_below_the_common_bound() -> None:
    for words in (30, 100, 300, 1000, 4000):
        every, chosen = shingle_hashes(" ".join(WORDS[:words])), sketch(" ".join(WORDS[:words]))
        assert every[every < COMMON].tolist() == chosen[chosen < COMMON].tolist()
    assert [size_class(shingle_hashes(" ".join(WORDS[:words]))) for words in (7, 8, 11, 135, 4000)] == [
        0,
        1,
        3,
        8,
        LARGEST,
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALL OF IT, 1", 0),
        ("none of it", 1),
        ("As written", 2),
        ("漢字かな", 2),
        ("ΟΛΑ", 0),
        ("", 2),
        ("A" * 9000 + "a" * 50_000, 2),
    ],
)
def test_casing(text: str, expected: int) -> None:
    assert casing(text) == expected


@given(st.text())
def test_any_text_has_rising_distinct_hashes(text: str) -> None:
    hashes = sketch(text)
    assert hashes.dtype == np.uint64 and (np.diff(hashes.astype(object)) > 0).all()
