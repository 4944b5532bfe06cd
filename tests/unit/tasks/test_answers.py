"""Logits to answers, by hand and against all spans one by one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import DataError
from pipeline.tables.squad import Question
from pipeline.tasks.answers import Answer, Span, answer_of_logits, best_threshold
from pipeline.tasks.parts import most_context, parts
from pipeline.tasks.windows import QuestionWindow

CONTEXT = "red dogs, blue cats"  # tokens: red dogs , blue cats
STARTS, ENDS = np.array([0, 4, 8, 10, 15], np.int32), np.array([3, 8, 9, 14, 19], np.int32)


def window(
    start: int = 0, end: int = 5, most: list[bool] | None = None, starts: np.ndarray = STARTS, ends: np.ndarray = ENDS
) -> QuestionWindow:
    """[CLS] question [SEP], of three tokens, and these tokens of the context, and [SEP]."""
    flags = np.array([True] * (end - start) if most is None else most, bool)
    return QuestionWindow(
        ids=np.zeros(end - start + 4, np.int32),
        first_length=3,
        starts=starts[start:end],
        ends=ends[start:end],
        most_context=flags,
        start=0,
        end=0,
        question_cut=False,
    )


def logits(*values: float, cls: float = 0.0) -> np.ndarray:
    """Logits of [CLS], the question and [SEP], the context (`values`) and [SEP]; the question and both [SEP] have 99,
    so they win unless ignored.
    """
    return np.array([cls, 99.0, 99.0, *values, 99.0], np.float32)


def found(answer: Answer) -> list[tuple[str, float]]:
    return [(span.text, span.logit) for span in answer.spans]


def test_spans_by_hand() -> None:
    """Starts at dogs 3, blue 1.5; ends at cats 4, dogs 1.25: the three greatest of their sums."""
    answer = answer_of_logits(
        CONTEXT, [window()], [logits(0, 3, 0, 1.5, 0)], [logits(0, 1.25, 0, 0, 4)], unanswerable=False, n_best=3
    )
    assert found(answer) == [("dogs, blue cats", 7), ("blue cats", 5.5), ("dogs", 4.25)]
    assert (
        (answer.spans[0].start, answer.spans[0].end) == (4, 19)
        and answer.text() == "dogs, blue cats"
        and answer.null == 0
    )
    weights = [math.exp(logit - 7) for _, logit in found(answer)]
    assert [span.probability for span in answer.spans] == pytest.approx([weight / sum(weights) for weight in weights])


def test_an_answer_is_no_longer_than_said_and_never_ends_before_it_starts() -> None:
    """The greatest logits are an end at red and a start at blue."""
    inputs = [window()], [logits(1, 2, 3, 9, 4)], [logits(9, 0, 0, 0, 0)]
    one = answer_of_logits(CONTEXT, *inputs, unanswerable=False, longest=1, n_best=9)
    assert found(one) == [("red", 10), ("blue", 9), ("cats", 4), (",", 3), ("dogs", 2)]
    two = answer_of_logits(CONTEXT, *inputs, unanswerable=False, longest=2, n_best=20)
    assert {text for text, _ in found(two)} == {
        "red",
        "red dogs",
        "dogs",
        "dogs,",
        ",",
        ", blue",
        "blue",
        "blue cats",
        "cats",
    }


def test_a_span_starts_where_its_token_has_the_most_context() -> None:
    """The second window has the greater logit for "dogs", whose most context is in the first."""
    windows = [window(0, 3, [True, True, False]), window(1, 5, [False, True, True, True])]
    answer = answer_of_logits(
        CONTEXT,
        windows,
        [logits(0, 2, 0), logits(50, 0, 1, 0)],
        [logits(0, 2, 0), logits(50, 0, 0, 1)],
        unanswerable=False,
    )
    assert found(answer)[0] == ("dogs", 4) and answer.text() == "dogs"


def test_a_span_may_end_where_the_next_window_has_more_context() -> None:
    answer = answer_of_logits(
        CONTEXT, [window(0, 3, [True, True, False])], [logits(0, 5, 0)], [logits(0, 0, 5)], unanswerable=False
    )
    assert found(answer)[0] == ("dogs,", 10)


def test_the_same_text_at_two_places_is_one_answer() -> None:
    starts, ends = np.array([0, 2, 4]), np.array([1, 3, 5])
    answer = answer_of_logits(
        "a b a", [window(0, 3, starts=starts, ends=ends)], [logits(1, 0.5, 2)], [logits(0.25, 0, 1)], unanswerable=False
    )
    assert found(answer) == [("a", 3), ("a b a", 2), ("b a", 1.5), ("a b", 1), ("b", 0.5)]
    assert answer.spans[0] == Span(text="a", start=4, end=5, logit=3.0, probability=answer.spans[0].probability)


def test_no_answer_is_the_least_null_score_of_all_windows() -> None:
    inputs = (
        [window(0, 3), window(3, 5)],
        [logits(0, 0, 0, cls=5), logits(0, 0, cls=1)],
        [logits(0, 0, 0, cls=2), logits(4, 0, cls=2)],
    )
    answer = answer_of_logits(CONTEXT, *inputs, unanswerable=True)
    assert answer.null == 3 and answer.margin == -1 and found(answer)[:2] == [("blue", 4), ("", 3)]
    assert (answer.text(), answer.text(-1.0), answer.text(-1.5)) == ("blue", "blue", "")
    assert sum(span.probability for span in answer.spans) == pytest.approx(1)
    assert "" not in {span.text for span in answer_of_logits(CONTEXT, *inputs, unanswerable=False).spans}


def test_no_answer_may_be_the_likeliest_and_1_1_still_answers() -> None:
    answer = answer_of_logits(
        CONTEXT, [window()], [logits(0, 1, 0, 0, 0, cls=9)], [logits(0, 1, 0, 0, 0, cls=9)], unanswerable=True, n_best=1
    )
    assert (
        found(answer) == [("", 18), ("dogs", 2)]
        and answer.text() == "dogs"
        and answer.text(0.0) == ""
        and answer.margin == 16
    )


def test_a_context_without_tokens_has_no_answer() -> None:
    answer = answer_of_logits("", [window(0, 0)], [logits()], [logits()], unanswerable=False)
    assert (
        answer.spans == ()
        and answer.best is None
        and answer.text() == answer.text(5.0) == ""
        and answer.margin == math.inf
    )


def test_white_space_goes_and_accents_stay() -> None:
    """Pieces that begin with their space, and an accent that is a character of its own and in no piece."""
    starts, ends = np.array([0, 3]), np.array([3, 8])
    text = "caf cafe\u0301 x"
    answer = answer_of_logits(
        text, [window(0, 2, starts=starts, ends=ends)], [logits(0, 5)], [logits(0, 5)], unanswerable=False
    )
    assert answer.text() == "cafe\u0301" and (answer.spans[0].start, answer.spans[0].end) == (4, 9)


@given(st.integers(1, 14), st.integers(1, 5), st.integers(1, 40), st.integers(0, 2**32))
def test_the_best_are_those_of_all_spans_one_by_one(tokens: int, longest: int, n_best: int, seed: int) -> None:
    """Letters that are all different, in windows of five that share two."""
    rng, letters = np.random.default_rng(seed), "abcdefghijklmn"[:tokens]
    places = np.arange(tokens)
    bounds = parts(tokens, 5, 2)
    windows = [window(s, e, most.tolist(), places, places + 1) for (s, e), most in zip(bounds, most_context(bounds))]
    starts, ends = ([logits(*rng.normal(size=e - s)) for s, e in bounds] for _ in range(2))
    wanted = {}
    for w, start, end in zip(windows, starts, ends):
        for first in np.flatnonzero(w.most_context):
            for last in range(first, min(first + longest, len(w.starts))):
                text = letters[w.starts[first] : w.ends[last]]
                wanted[text] = max(wanted.get(text, -np.inf), float(start[3 + first]) + float(end[3 + last]))
    ranked = sorted(wanted.items(), key=lambda pair: -pair[1])[:n_best]
    assert (
        found(answer_of_logits(letters, windows, starts, ends, unanswerable=False, n_best=n_best, longest=longest))
        == ranked
    )


def asked(id: str, *texts: str) -> Question:
    return Question(id=id, question="", context="", answers=tuple((text, 0) for text in texts), impossible=not texts)


def of_margin(margin: float, text: str) -> Answer:
    return Answer(spans=(Span(text=text, start=0, end=len(text), logit=1.0),), null=1.0 + margin)


def test_a_threshold_by_hand() -> None:
    """Answering up to -1 gets a right and c wrong; up to 2 also b right, twice as much as d's mistake; up to 5 only e's
    mistake more.
    """
    answers = {
        "a": of_margin(-3, "x"),
        "c": of_margin(-1, "x"),
        "b": of_margin(2, "x y"),
        "d": of_margin(1, "x"),
        "f": of_margin(2, "z"),
        "e": of_margin(5, "x"),
    }
    questions = [asked("a", "x"), asked("b", "x y"), asked("c"), asked("d", "y"), asked("e"), asked("f", "z")]
    tuned = best_threshold(answers, questions)
    assert tuned == {
        "threshold_tuned_on_dev": 2.0,
        "f1_tuned_on_dev": pytest.approx(100 * 4 / 6),
    }  # a, b, f and the empty answer to e


def test_questions_of_one_margin_are_answered_together() -> None:
    """Right and wrong at the same margin: nothing is won, and the lowest threshold answers neither."""
    tuned = best_threshold({"a": of_margin(1, "x"), "b": of_margin(1, "x")}, [asked("a", "x"), asked("b")])
    assert tuned == {"threshold_tuned_on_dev": 0.0, "f1_tuned_on_dev": 50.0}


def test_a_threshold_leaves_questions_whose_answers_have_no_text_unanswered() -> None:
    empty = Question(id="b", question="", context="", answers=(("", -1),), impossible=True)
    tuned = best_threshold({"a": of_margin(1, "x"), "b": of_margin(2, "x")}, [asked("a", "x"), empty])
    assert tuned == {"threshold_tuned_on_dev": 1.0, "f1_tuned_on_dev": 100.0}


def test_without_spans_there_is_a_finite_threshold() -> None:
    none = Answer(spans=(), null=0.0)
    assert best_threshold({"a": of_margin(1, "x"), "b": none}, [asked("a", "x"), asked("b")]) == {
        "threshold_tuned_on_dev": 1.0,
        "f1_tuned_on_dev": 100.0,
    }
    assert best_threshold({"b": none}, [asked("b")]) == {"threshold_tuned_on_dev": 0.0, "f1_tuned_on_dev": 100.0}


def test_a_threshold_of_no_questions_is_refused() -> None:
    with pytest.raises(DataError, match="there are 0 questions to score: give a file with at least 1"):
        best_threshold({}, [])
