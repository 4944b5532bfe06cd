"""Questions and contexts to windows, by hand."""

import numpy as np
import pytest

from pipeline.errors import ConfigError
from pipeline.tables.squad import Question
from pipeline.tasks.pieces import Tokenization
from pipeline.tasks.windows import QuestionWindow, Windowing, windows
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary

LETTERS = "abcdefghij"
TOKENIZATION = Tokenization(
    Vocabulary(tokens=(*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS)), lowercase=True)
)
CLS, SEP, A = 2, 3, 5
SMALL = Windowing(maximum_length=10, stride=2, question_length=2)  # with two pieces of question five of context


def asked(context: str, *answers: tuple[str, int], question: str = "j i", impossible: bool = False) -> Question:
    return Question(id="q", question=question, context=context, answers=answers, impossible=impossible)


def one(question: Question) -> list[QuestionWindow]:
    return windows(TOKENIZATION, [question], SMALL)[0]


def test_a_short_context_by_hand() -> None:
    (window,) = one(asked("a Bc  d", ("Bc", 2)))
    assert (
        window.ids.tolist() == [CLS, 14, 13, SEP, A, 6, 17, 8, SEP]
        and window.first_length == 4
        and window.context == slice(4, 8)
    )
    assert (window.starts.tolist(), window.ends.tolist()) == ([0, 2, 3, 6], [1, 3, 4, 7])
    assert (window.start, window.end) == (5, 6) and window.most_context.tolist() == [True] * 4
    assert window.ids.dtype == window.starts.dtype == window.ends.dtype == np.int32


def test_a_long_context_by_hand() -> None:
    """Eight letters give two windows of five; only the second, which begins at d, holds all of the answer "e f"."""
    first, second = one(asked("a b c d e f g h", ("e f", 8)))
    assert first.ids.tolist() == [CLS, 14, 13, SEP, 5, 6, 7, 8, 9, SEP] and second.ids.tolist() == [
        CLS,
        14,
        13,
        SEP,
        8,
        9,
        10,
        11,
        12,
        SEP,
    ]
    assert first.starts.tolist() == [0, 2, 4, 6, 8] and second.starts.tolist() == [6, 8, 10, 12, 14]
    assert (first.start, first.end, second.start, second.end) == (0, 0, 5, 6)
    assert first.most_context.tolist() == [True, True, True, True, False] and second.most_context.tolist() == [
        False,
        True,
        True,
        True,
        True,
    ]


def test_an_answer_in_two_windows_is_the_target_of_both() -> None:
    first, second = one(asked("a b c d e f g h", ("d e", 6)))
    assert (first.start, first.end, second.start, second.end) == (7, 8, 4, 5)


def test_an_answer_within_pieces_is_the_pieces_that_hold_it() -> None:
    """The answer b lies inside "abc"; spaces around an answer add no piece."""
    assert [(window.start, window.end) for window in one(asked("abc d", ("b", 1)))] == [(5, 5)]
    assert [(window.start, window.end) for window in one(asked("a b  c", (" b ", 1)))] == [(5, 5)]


def test_impossible_questions_have_the_first_token_as_target() -> None:
    assert [(window.start, window.end) for window in one(asked("a b c d e f", impossible=True))] == [(0, 0), (0, 0)]


def test_an_answer_without_text_is_no_target_whatever_its_offset() -> None:
    (window,) = one(asked("ab c", ("", 1), impossible=True))
    assert (window.start, window.end) == (0, 0)


def test_a_long_question_is_cut_and_a_short_one_leaves_more_room() -> None:
    (cut,), (whole,) = one(asked("a", question="j i h g")), one(asked("a", question="j i"))
    assert (
        cut.ids.tolist() == whole.ids.tolist() == [CLS, 14, 13, SEP, A, SEP]
        and cut.question_cut
        and not whole.question_cut
    )
    assert [len(window.ids) for window in one(asked("a b c d e f g h", question="j"))] == [10, 8]
    assert one(asked("a", question=""))[0].ids.tolist() == [CLS, SEP, A, SEP]


def test_an_empty_context_is_one_window() -> None:
    (window,) = one(asked(" ", question="j"))
    assert (
        window.ids.tolist() == [CLS, 14, SEP, SEP]
        and window.context == slice(3, 3)
        and len(window.starts) == len(window.most_context) == 0
    )


def test_questions_come_in_their_order_and_share_their_context() -> None:
    first, second, third = windows(
        TOKENIZATION, [asked("a b", ("a", 0)), asked("c"), asked("a b", ("b", 2), question="h")], SMALL
    )
    assert [window[0].ids.tolist() for window in (first, second, third)] == [
        [CLS, 14, 13, SEP, 5, 6, SEP],
        [CLS, 14, 13, SEP, 7, SEP],
        [CLS, 12, SEP, 5, 6, SEP],
    ]
    assert (first[0].start, third[0].start) == (4, 4) and np.shares_memory(first[0].starts, third[0].starts)


def test_settings_that_leave_no_room_are_refused() -> None:
    with pytest.raises(ConfigError) as error:
        Windowing(maximum_length=128)
    assert str(error.value) == (
        "cutting.stride (128) must be less than 61, the pieces of context that fit in cutting.maximum_length (128) "
        "with cutting.question_length (64) and 3 special tokens: lower the stride or raise the length"
    )
    assert Windowing(maximum_length=128, stride=60).stride == 60
    with pytest.raises(ConfigError, match="stride \\(61\\) must be less than 61, the pieces"):
        Windowing(maximum_length=128, stride=61)
    with pytest.raises(
        ConfigError, match=r"cutting.question_length \(0\) must be at least 1, cutting.stride \(-1\) at least 0"
    ):
        Windowing(question_length=0, stride=-1)
