"""Natural Questions (Kwiatkowski et al. 2019): read questions with short answers, and score as the official script.

Long answers, and answers that are yes or no, are not predicted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.errors import BadRow, DataError
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.content import SURROGATE, text_lines
from pipeline.tables.readers import json_rows
from pipeline.tables.squad import Question
from pipeline.tasks.answers import Answer, Span

Words = tuple[int, int]
"""A span of a document: index of its first word, and one past the index of its last."""
YES_OR_NO: tuple[Words, ...] = ((-1, -1),)
"""Spans of an annotator who answered yes or no; no predicted span is equal to them."""
LEAST_ANSWERED = 2
"""A question has a short answer if at least this number of its five annotators gave one (nq_eval.py)."""


def read_natural(location: str, bad: BadRows | None = None) -> list[Question]:
    """Return the questions of a file of JSON lines, in the simplified format or that of the official development set.

    The context is the whole document, its words (HTML tags among them) divided by spaces. The first answer goes from
    the first to the last short answer of the first annotator who gave one (Alberti et al. 2019). A question is
    impossible if too few annotators gave a short answer. Raises DataError if there are no questions; `bad` skips lines
    of another form, or raises DataError.
    """
    bad, questions = bad or BadRows(), []
    for line, row in bad.usable(json_rows(location, text_lines(location))):
        try:
            questions.append(_question_of(row))
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            bad.take(BadRow(f"{location}:{line}: not a line of Natural Questions ({reason})", "no-question"))
    bad.require_some(location, len(questions))
    if not questions:
        raise DataError(f"{location} has no questions")
    return questions


def _question_of(row: Mapping[str, Any]) -> Question:
    """Return the question of a line."""
    words = _words_of(row)
    given = [_spans_of(annotation) for annotation in row.get("annotations", ())]
    context, answered = " ".join(words), sum(bool(spans) for spans in given)
    impossible = bool(given) and answered < min(LEAST_ANSWERED, len(given))
    shown = next((spans for spans in given if spans and spans != YES_OR_NO), None)
    answers = () if impossible or shown is None else (_text_of(words, shown),)
    question = SURROGATE.sub("\ufffd", row["question_text"])
    id = str(row["example_id"])
    return Question(
        id=id, question=question, context=context, answers=answers, impossible=impossible, annotators=tuple(given)
    )


def _words_of(row: Mapping[str, Any]) -> list[str]:
    """Return the words of a document: of its text in the simplified format, else of its list of tokens."""
    if "document_text" in row:
        return SURROGATE.sub("\ufffd", row["document_text"]).split(" ")
    return [SURROGATE.sub("\ufffd", token["token"]).replace(" ", "_") for token in row["document_tokens"]]


def _spans_of(annotation: Mapping[str, Any]) -> tuple[Words, ...]:
    """Return an annotator's short answers in order, YES_OR_NO, or an empty tuple for no short answer."""
    spans = sorted((answer["start_token"], answer["end_token"]) for answer in annotation["short_answers"])
    return tuple(spans) or (YES_OR_NO if annotation["yes_no_answer"].lower() in ("yes", "no") else ())


def _text_of(words: Sequence[str], spans: Sequence[Words]) -> tuple[str, int]:
    """Return the text from the first to the last of some spans, and the offset of its first character."""
    first, last = spans[0][0], max(end for _, end in spans)
    return " ".join(words[first:last]), sum(len(word) + 1 for word in words[:first])


def words_at(context: str, span: Span) -> Words:
    """Return the words that a span of characters touches."""
    first = context.count(" ", 0, span.start)
    return first, first + context.count(" ", span.start, span.end) + 1


def natural_scores(answers: Mapping[str, Answer], questions: Sequence[Question], threshold: float) -> dict[str, float]:
    """Return F1, precision and recall of short answers, as shares of 1, with "no answer" above a margin of `threshold`.

    A predicted span is right if it is the whole short answer of an annotator, of a question that has a short answer.
    Precision counts the predicted answers, and recall the questions with a short answer; those of yes or no are among
    them, and count as missed.
    """
    predicted = right = 0
    for question in questions:
        answer = answers[question.id]
        if answer.best is None or answer.margin > threshold:
            continue
        predicted += 1
        right += _is_right(answer.best, question)
    return _scores_of(right, predicted, sum(not question.impossible for question in questions))


def _is_right(span: Span, question: Question) -> bool:
    """Return whether a span is the whole short answer of an annotator, and the question has a short answer."""
    return not question.impossible and (words_at(question.context, span),) in question.annotators


def _scores_of(right: int, predicted: int, answerable: int) -> dict[str, float]:
    """Return F1, precision and recall; 0 where they are undefined."""
    precision, recall = right / predicted if predicted else 0.0, right / answerable if answerable else 0.0
    both = precision + recall
    return {"f1": 2 * precision * recall / both if both else 0.0, "precision": precision, "recall": recall}


def best_natural_threshold(answers: Mapping[str, Answer], questions: Sequence[Question]) -> dict[str, float]:
    """Return the margin with the highest F1 on these questions as `null_threshold`, and its F1 as `f1_tuned_on_dev`."""
    found = [(answers[question.id], question) for question in questions]
    ordered = sorted((answer.margin, _is_right(answer.best, question)) for answer, question in found if answer.best)
    answerable, right = sum(not question.impossible for question in questions), 0
    best, threshold = 0.0, min((margin for margin, _ in ordered), default=1.0) - 1
    for number, (margin, is_answer) in enumerate(ordered, 1):
        right += is_answer
        last = number == len(ordered) or ordered[number][0] > margin
        f1 = _scores_of(right, number, answerable)["f1"]
        if last and f1 > best:
            best, threshold = f1, margin
    return {"null_threshold": threshold, "f1_tuned_on_dev": best}
