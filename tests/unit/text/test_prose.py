"""Sentences of plain prose against those with code and markup, and the words of a sentence."""

import pytest

from pipeline.text.prose import is_complete, is_letters, is_plain, word_spans


@pytest.mark.parametrize(
    "sentence",
    [
        "The old man went over the hill, and didn't look back.",
        "They said “no” (twice); a well-known answer — isn't it?",
        "Er fragte: „Warum nicht?“",
        "La réponse, c'est « oui ».",
        "他们今天去北京看朋友，明天回来。",
        "彼は「はい」と言った。",
        "वह धीरे-धीरे घर गया।",
        "ذهب الولد إلى البيت، ثم نام.",
        "Он пошёл домой, а она — нет…",
        "Ο άνδρας πήγε στο σπίτι· εκείνη όχι.",
        "می\u200cخواهم بروم.",
    ],
)
def test_letters_and_usual_punctuation_are_plain_in_any_script(sentence: str) -> None:
    assert is_plain(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Return the list of edges where ``n`` is known.",
        "See numpy.array for the types.",
        "The value of max_length is kept.",
        "It calls close(handle) at the end.",
        "Use the option --quiet for that.",
        "If 'left' is given, it goes left.",
        "An :class of its own.",
        "A DataFrame with rows.",
        "Like this::",
        "It has 12 rows.",
        "The sum a + b is kept.",
        "A *bold* word.",
        "See [the page] for it.",
        "Write to me@home please.",
        "Two  spaces in a row.",
        "A ＿ of full width＿.",
        "The path a/b is used.",
    ],
)
def test_code_markup_and_numbers_are_not_plain(sentence: str) -> None:
    assert not is_plain(sentence)


def test_a_complete_sentence_begins_with_a_capital_or_caseless_letter_and_ends_with_a_mark() -> None:
    assert is_complete("It is so.") and is_complete("他去。") and is_complete("वह गया।")
    assert not is_complete("it is so.") and not is_complete("It is so") and not is_complete("(It is so.)")


def test_words_keep_their_marks_apostrophes_and_hyphens() -> None:
    sentence = "I don't (really) say “well-known”, हिन्दी।"
    words = {sentence[start:end] for start, end in word_spans(sentence)}
    assert words == {"I", "don't", "really", "say", "well-known", "हिन्दी"}


def test_letters_may_carry_marks_but_are_never_alone_marks_or_digits() -> None:
    assert is_letters("हिन्दी") and is_letters("café") and is_letters("朋友")
    assert not any(map(is_letters, ("", "ी", "a1", "don't", "a_b", "\ufffd")))
