import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.sentences import WIDE_SPACE, split_sentences

TEXT = st.text(alphabet=st.sampled_from(list("aB JM.?!\"'()“”\u00a0\u3000\u2028\t\r\n。é1")), max_size=60)


def test_sentences_end_at_full_stops_and_at_line_feeds() -> None:
    text = "The first one.  Mr. Smith wrote it!\nA heading\nlower case after it. \n\n\t\nThe end"
    assert split_sentences(text) == ["The first one.", "Mr. Smith wrote it!", "A heading", "lower case after it.", "The end"]


def test_lines_that_are_sentences_are_not_split() -> None:
    assert split_sentences(" One. Two.\r\n\n  \nThree", lines_are_sentences=True) == ["One. Two.", "Three"]


def test_the_language_decides() -> None:
    assert split_sentences("Das ist z.B. Holz. Ja.", language="de") == ["Das ist z.B. Holz.", "Ja."]


@pytest.mark.parametrize("text", ["", "\n\n", " \u3000\n\u00a0"])
def test_no_text_has_no_sentences(text: str) -> None:
    assert split_sentences(text) == []


@pytest.mark.parametrize("space", "\u0085\u00a0\u1680\u2000\u2007\u2028\u2029\u202f\u205f\u3000")
def test_wide_space_before_an_initial_is_a_plain_space(space: str) -> None:
    """sentencex 1.0.32 panics on these."""
    assert split_sentences(f"Written by{space}J. Smith.{space}B was not.") == split_sentences("Written by J. Smith. B was not.")


@given(TEXT, st.booleans())
def test_nothing_is_lost_and_no_sentence_is_blank(text: str, lines: bool) -> None:
    sentences = split_sentences(text, lines_are_sentences=lines)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() and "\n" not in sentence for sentence in sentences)
    assert not any(WIDE_SPACE.search(sentence) for sentence in sentences)


@given(TEXT, TEXT)
def test_lines_do_not_see_each_other(first: str, second: str) -> None:
    assert split_sentences(f"{first}\n{second}") == split_sentences(first) + split_sentences(second)
