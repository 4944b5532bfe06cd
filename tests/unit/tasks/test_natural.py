"""Natural Questions: documents of words, short answers of several annotators, and the official F1 by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.score import main as score
from pipeline.config.measurements import LabelledFile
from pipeline.errors import DataError
from pipeline.predict.score import of_file
from pipeline.tables.squad import Question
from pipeline.tasks import questions
from pipeline.tasks.answers import Answer, Span
from pipeline.tasks.benchmarks import TASKS
from pipeline.tasks.known import read_items
from pipeline.tasks.natural import YES_OR_NO, best_natural_threshold, natural_scores, words_at
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import ENCODED

TASK = TASKS["natural-questions"]
ROWS = """
how deep is lake murra|<P> Lake Murra is 90 metres deep . </P>|4-6;4-6;4-5;;
who wrote the salt road|<P> The Salt Road is by Ada Venn . </P>|6-8;6-8;6-8;6-8;6-8
is the ember line closed|<P> Two stations of it are closed . </P>|no;no;;;
who founded the bakery|<P> Ines Roth and Jon Hale founded it . </P>|1-3,4-6;1-3,4-6;1-6;;
what is a tarn|<P> Many have no name . </P>|;;;;1-2
when did the mill burn|<P> The mill burnt in 1902 . </P>|5-6;5-6;5-6;;
what do storks eat|<P> Frogs , mice and fish . </P>|1-2,3-4,5-6;1-2,3-4,5-6;;;
where is port sand|<P> It is on the south coast . </P>|4-7;5-7;4-7;4-7;
who rowed the strait|<P> Lena Skov did . </P>|1-3;1-3;1-3;1-3;1-3
what is the anthem's key|<P> It is in G major . </P>|4-6;4-6;4-5;;
can pigs swim|<P> Some can . </P>|yes;yes;yes;;
when is the fair|<P> In June . </P>|2-3;2-3;;;
what covers the roof|<P> It is thatched . </P>|;;;;
how many keys has it|<P> Nobody counted them . </P>|;;;;
which tree is on the flag|<P> An elm . </P>|2-3;1-3;2-3;;
who sold the mill|<P> Jon Hale sold it . </P>|1-3;1-3;;;
what is sold there|<P> Bread & salt . </P>|1-4;1-4;1-2;;
when is the market|<P> On Mondays . </P>|2-3;2-3;2-3;;
who painted the blue mill|<P> It is not signed . </P>|;;;;
what is it made of|<P> Of stone . </P>|2-3;2-3;2-3;2-3;2-3
"""


def annotation(number: int, said: str) -> dict[str, Any]:
    """An annotator's answer: spans of words, yes or no, or nothing."""
    spans = [] if said in ("", "yes", "no") else [span.split("-") for span in said.split(",")]
    return {
        "annotation_id": number,
        "long_answer": {"candidate_index": 0, "end_token": 9, "start_token": 0},
        "short_answers": [{"end_token": int(end), "start_token": int(start)} for start, end in spans],
        "yes_no_answer": said.upper() if said in ("yes", "no") else "NONE",
    }


def lines(*, simplified: bool = True, annotators: int = 5) -> str:
    found = []
    for number, row in enumerate(ROWS.strip().split("\n")):
        question, document, said = row.split("|")
        words = document.split(" ")
        text = {"document_text": document} if simplified else {"document_tokens": [{"token": word} for word in words]}
        given = [annotation(place, own) for place, own in enumerate(said.split(";")[:annotators])]
        candidates = [{"end_token": len(words), "start_token": 0, "top_level": True}]
        others = {"document_url": "https://example.org", "example_id": 100 + number, "annotations": given}
        found.append(text | others | {"question_text": question, "long_answer_candidates": candidates})
    return "".join(json.dumps(row) + "\n" for row in found)


def natural(folder: Path) -> Path:
    """A training file with one annotator, and a development file in the other format with five."""
    (folder / "v1.0-simplified_simplified-nq-train.jsonl").write_text(lines(annotators=1))
    (folder / "v1.0-simplified_nq-dev-all.jsonl").write_text(lines(simplified=False))
    return folder


def test_short_answers_are_spans_of_the_whole_document(tmp_path: Path) -> None:
    items, notes = read_items(TASK, str(natural(tmp_path)), "dev")
    assert len(items) == 20 and notes == ()
    assert items[0] == Question(
        id="100",
        question="how deep is lake murra",
        context="<P> Lake Murra is 90 metres deep . </P>",
        answers=(("90 metres", 18),),
        annotators=(((4, 6),), ((4, 6),), ((4, 5),), (), ()),
    )
    # Several short answers are learnt as the text from the first to the last.
    assert items[3].answers == (("Ines Roth and Jon Hale", 4),) and items[3].annotators[0] == ((1, 3), (4, 6))
    for item in (item for item in items if item.answers):
        assert item.context.startswith(*item.answers[0])
    # One annotator of five is too few for an answer; yes and no are answers without a text.
    assert [number for number, item in enumerate(items) if item.impossible] == [4, 12, 13, 18]
    assert items[4].answers == items[2].answers == () and items[2].annotators[:2] == (YES_OR_NO, YES_OR_NO)


def test_training_leaves_out_yes_and_no_and_has_questions_without_an_answer(tmp_path: Path) -> None:
    items, notes = read_items(TASK, str(natural(tmp_path)), "train")
    assert notes == ("2 questions left out (no-answer-given)",) and len(items) == 18
    assert [item.id for item in items if item.impossible] == ["104", "112", "113", "118"]


def answer(question: Question, words: tuple[int, int], margin: float) -> Answer:
    """An answer of these words, with "no answer" better by a margin."""
    parts = question.context.split(" ")
    start = sum(len(word) + 1 for word in parts[: words[0]])
    text = " ".join(parts[words[0] : words[1]])
    span = Span(text=text, start=start, end=start + len(text), logit=0.0)
    assert words_at(question.context, span) == words
    return Answer(spans=(span,), null=margin)


def test_f1_by_hand(tmp_path: Path) -> None:
    items, _ = read_items(TASK, str(natural(tmp_path)), "dev")
    said = {
        0: ((4, 5), -3.0),  # right: the third annotator's
        1: ((6, 8), -2.0),  # right
        2: ((1, 3), 5.0),  # no answer, but the true one is "no"
        3: ((4, 6), -1.0),  # wrong: one of two short answers
        4: ((1, 2), -1.0),  # wrong: a single annotator
        5: ((5, 6), 0.5),  # no answer, but the words are right
        12: ((1, 2), 4.0),  # no answer, as there is none
    }
    asked = [items[number] for number in said]
    answers = {items[number].id: answer(items[number], *given) for number, given in said.items()}
    # Two of four predicted answers are right, and five questions have an answer.
    expected = {"f1": pytest.approx(2 * 0.5 * 0.4 / 0.9), "precision": 0.5, "recall": 0.4}
    assert natural_scores(answers, asked, 0.0) == expected
    prepared = Prepared(items=asked, rows=ENCODED.empty_table())
    assert questions.score(TASK, prepared, answers, {}) == expected
    assert questions.baseline(TASK, prepared, prepared) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}
    # Margins up to -2: 2 of 2 and 2 of 5, F1 4/7. Up to -1: 2 of 4, F1 4/9. Up to 0.5: 3 of 5, F1 3/5, the best.
    tuned = questions.tune(TASK, prepared, answers)
    assert tuned == {"null_threshold": 0.5, "f1_tuned_on_dev": pytest.approx(3 / 5)}
    assert natural_scores(answers, asked, 0.5)["f1"] == pytest.approx(3 / 5)
    assert best_natural_threshold(answers, [items[4], items[12]]) == {"null_threshold": -2.0, "f1_tuned_on_dev": 0.0}


def test_part_of_a_word_counts_as_the_word() -> None:
    context = "in 1902, it burnt"
    assert words_at(context, Span(text="1902", start=3, end=7, logit=0)) == (1, 2)
    assert words_at(context, Span(text="2, i", start=6, end=10, logit=0)) == (1, 3)


def test_lines_of_another_form_are_named_or_skipped(tmp_path: Path) -> None:
    file = natural(tmp_path) / "v1.0-simplified_nq-dev-all.jsonl"
    file.write_text('{"question_text": "why"}\n' + file.read_text())
    with pytest.raises(DataError, match=r"nq-dev-all.jsonl:1: not a line of Natural Questions \(KeyError: 'docum"):
        read_items(TASK, str(tmp_path), "dev")
    items, notes = read_items(TASK, str(tmp_path), "dev", skip=True)
    assert len(items) == 20 and notes[0].startswith("1 rows left out (no-question, the first: ")


def test_files_of_answers_have_no_positions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    natural(tmp_path)
    (tmp_path / "answers.json").write_text('{"100": "90 metres"}')
    asked = ["--predictions", str(tmp_path / "answers.json"), "--task", "natural-questions", "--data", str(tmp_path)]
    assert score(asked) == 2
    words = "are texts, but task (natural-questions) is scored by positions: give the model with --checkpoint instead"
    assert words in capsys.readouterr().err


def test_own_questions_get_the_scores_of_squad(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("context,question,answer\nIn June .,when,June\n")
    labelled = of_file(LabelledFile(input=str(tmp_path / "own.csv")), TASK)
    assert labelled.task.script == "squad" and labelled.task.unanswerable and len(labelled.items) == 1
