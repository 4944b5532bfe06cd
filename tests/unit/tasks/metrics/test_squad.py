"""Exact match and F1 of answers worked by hand, and a published submission on the real development set where it is at
hand.
"""

import json
import os
from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.tables.content import content_of
from pipeline.tables.squad import Question, read_questions
from pipeline.tasks.metrics.squad import exact, f1, normalised, score
from tests.data import needs_data


def asked(id: str, *texts: str, impossible: bool = False) -> Question:
    return Question(id=id, question="", context="", answers=tuple((text, 0) for text in texts), impossible=impossible)


@pytest.mark.parametrize(
    "text, same",
    [
        ("The  Cat's\tpaw!", "cats paw"),
        ("An a, THE", ""),
        ("the-cat a.b", "thecat ab"),  # articles go after punctuation
        ("theatre another", "theatre another"),
        ("24–10 “x”", "24–10 “x”"),  # only ASCII punctuation goes
        ("É à\u00a0la", "é à la"),
    ],
)
def test_answers_are_normalised(text: str, same: str) -> None:
    assert normalised(text) == same


def test_words_are_shared_as_often_as_in_both() -> None:
    assert f1("x x y", "x z") == pytest.approx(2 * 1 / 5) and f1("x x y", "x x") == pytest.approx(2 * 2 / 5)
    assert f1("the Cat", "cat.") == exact("the Cat", "cat.") == 1 and f1("dog", "cat") == exact(
        "dog", "cat"
    ) == 0 == f1("the", "a")


def test_1_1_by_hand() -> None:
    """a: right by its second answer. b: one of two words, so F1 2/3. c: no prediction. d: both empty when normalised,
    so exact without F1.
    """
    questions = [asked("a", "x y", "z"), asked("b", "x y"), asked("c", "x"), asked("d", "the")]
    scores = score({"a": "Z.", "b": "an x", "d": "a", "other": "x"}, questions)
    assert scores == pytest.approx({"exact": 50, "f1": 100 * (1 + 2 / 3) / 4, "total": 4, "missing": 1})


def test_the_best_answer_may_differ_for_both_scores() -> None:
    assert score({"a": "x y"}, [asked("a", "q", "x y z", "x")]) == pytest.approx(
        {"exact": 0, "f1": 80, "total": 1, "missing": 0}
    )


def test_2_0_by_hand() -> None:
    """Answered: a right, b half, c not answered though it could be.

    Impossible: d left empty, e answered, f answered by an article alone.
    """
    questions = [asked("a", "x"), asked("b", "x y z"), asked("c", "x"), *(asked(id, impossible=True) for id in "def")]
    scores = score({"a": "x", "b": "x", "c": "", "d": "", "e": "x", "f": "The"}, questions)
    assert scores == pytest.approx(
        {
            "exact": 50,
            "f1": 100 * 3.5 / 6,
            "total": 6,
            "missing": 0,
            "HasAns_exact": 100 / 3,
            "HasAns_f1": 50,
            "HasAns_total": 3,
            "NoAns_exact": 200 / 3,
            "NoAns_f1": 200 / 3,
            "NoAns_total": 3,
        }
    )


def test_answers_of_articles_alone_do_not_count_in_2_0() -> None:
    """Without "the" the question has only "x"; a question whose answers are all such has the empty one, and counts
    among those with answers.
    """
    scores = score({"a": "a", "b": "an"}, [asked("a", "the", "x"), asked("b", "the"), asked("c", impossible=True)])
    assert (
        scores["HasAns_exact"],
        scores["HasAns_f1"],
        scores["HasAns_total"],
        scores["NoAns_exact"],
        scores["missing"],
    ) == (50, 50, 2, 0, 1)


def test_answers_without_text_score_as_in_the_2_0_script() -> None:
    """evaluate-v2.0.py compares with "" where no answer has text. It counts an empty list among NoAns, and a list of
    empty texts among HasAns. a: right. b, c: right without an answer. d: answered, wrong.
    """
    questions = [
        asked("a", "x"),
        asked("b", impossible=True),
        *(asked(id, "", impossible=True) for id in "cd"),
    ]
    assert score({"a": "x", "b": "", "c": "", "d": "y"}, questions) == {
        "exact": 75,
        "f1": 75,
        "total": 4,
        "missing": 0,
        "HasAns_exact": pytest.approx(200 / 3),
        "HasAns_f1": pytest.approx(200 / 3),
        "HasAns_total": 3,
        "NoAns_exact": 100,
        "NoAns_f1": 100,
        "NoAns_total": 1,
    }


def test_one_kind_of_question_alone_has_no_figures_of_the_other() -> None:
    assert score({"a": ""}, [asked("a", impossible=True)]) == {
        "exact": 100,
        "f1": 100,
        "total": 1,
        "missing": 0,
        "NoAns_exact": 100,
        "NoAns_f1": 100,
        "NoAns_total": 1,
    }


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(DataError, match="there are 0 questions to score: give a file with at least 1"):
        score({}, [])
    with pytest.raises(DataError) as error:
        score({"a": "x"}, [asked("a", "x"), asked("b"), asked("c"), asked("d", impossible=True)])
    assert (
        str(error.value)
        == "question 'b' has 0 answers to be scored against (2 of 4 questions): give a file with answers"
    )


@needs_data("SQUAD")
def test_a_published_submission_has_its_published_scores() -> None:
    """SQUAD is a folder with dev-v1.1.json.gz and predictions-v1.1-bert-ensemble.json.gz."""
    folder = Path(os.environ["SQUAD"])
    predictions = json.loads(content_of(str(folder / "predictions-v1.1-bert-ensemble.json.gz")))
    scores = score(predictions, read_questions(str(folder / "dev-v1.1.json.gz")))
    assert (round(scores["exact"], 3), round(scores["f1"], 3), scores["total"], scores["missing"]) == (
        86.206,
        92.196,
        10_570,
        0,
    )
