import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.ngrams import TextFinder, WordSpans, parts_of

THIRTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen"


def found(texts: list[str], searched: list[str]) -> set[tuple[int, int]]:
    """(index of a searched text, index of a text in it)."""
    finder, words = TextFinder(WordSpans.of(texts)), WordSpans.of(searched)
    matches = finder.find(words)
    return set(zip(words.texts[matches.at].tolist(), finder.wanted.texts[matches.first].tolist()))


def test_case_punctuation_and_lines_do_not_matter_and_every_chinese_character_is_a_word() -> None:
    assert found(["The fox — it jumps over!"], ['he said: "THE FOX\nit-jumps over", and left']) == {(0, 0)}
    assert found(["我们在这里"], ["今天我们在这里。"]) == {(0, 0)}
    assert found(["the fox it jumps over"], ["the fox it jumped over", "a the fox it jumps", "over"]) == set()


def test_a_long_text_is_found_by_any_thirteen_words_in_a_row() -> None:
    text = f"{THIRTEEN} fourteen fifteen"
    twelve = THIRTEEN.removesuffix(" thirteen")
    assert found([text], [f"zero {THIRTEEN} 14", twelve, f"{text[4:]} and more", f"{twelve} 13 fourteen"]) == {
        (0, 0),
        (2, 0),
    }


def test_a_text_of_five_to_twelve_words_is_found_as_a_whole_and_a_shorter_one_nowhere() -> None:
    assert found(["one two three four five", "one two three four"], ["one two three four five six"]) == {(0, 0)}
    assert found(["one two three four five six"], ["one two three four five"]) == set()
    assert found([], ["one two three four five"]) == found(["one two three four five"], []) == set()


def test_texts_with_the_same_run_are_all_found() -> None:
    texts = [f"{THIRTEEN} end", f"start {THIRTEEN}", THIRTEEN]
    assert found(texts, [THIRTEEN]) == {(0, 0), (0, 1), (0, 2)}


def test_equal_hashes_of_different_words_are_no_match(monkeypatch) -> None:
    monkeypatch.setattr("pipeline.text.ngrams.mix_bits", lambda values: values * np.uint64(0))
    assert found(["one two three four five"], ["six two three four fiv", "one two three four five"]) == {(1, 0)}


@given(st.lists(st.text("ab cé", max_size=60), max_size=4), st.lists(st.text("ab cé", max_size=90), max_size=4))
def test_it_finds_what_comparing_all_words_finds(texts: list[str], searched: list[str]) -> None:
    expected = set()
    for index, text in enumerate(texts):
        words = re.findall(r"\w+", text)
        parts = [words[at : at + 13] for at in range(max(1, len(words) - 12))] if len(words) >= 5 else []
        for number, line in enumerate(searched):
            known = f" {' '.join(line.split())} "
            expected |= {(number, index)} if any(f" {' '.join(part)} " in known for part in parts) else set()
    assert found(texts, searched) == expected


def test_parts_hold_all_texts_once() -> None:
    texts = ["a" * 600_000, "b" * 500_000, "c", "d" * 3_000_000, "e"]
    assert [(start, len(part)) for start, part in parts_of(texts)] == [(0, 2), (2, 2), (4, 1)]
    assert list(parts_of([])) == []


def test_any_white_space_ends_a_word() -> None:
    text = "One\u00a0two\tthree  four\r\nfive\u3000six"
    words = WordSpans.of([text])
    assert [words.data[a:b].tobytes().decode() for a, b in zip(words.starts, words.stops)] == [
        "one", "two", "three", "four", "five", "six"
    ]  # fmt: skip
    assert len(TextFinder(WordSpans.of(["one two three four five six"])).find(words).at) == 1
