"""Questions in tables: one a row of CSV, TSV, JSON lines or Parquet, with its context and its answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import BadRow, DataError, shown
from pipeline.tasks.bad_rows import BadRows
from pipeline.tasks.content import content_of
from pipeline.tasks.readers import reader_of
from pipeline.tasks.squad import SURROGATE, Question

CONTEXT, QUESTION, START = "context", "question", "answer_start"
ANSWERS = ("answers", "answer")


@dataclass(frozen=True, kw_only=True)
class AskedColumns:
    """Names of the columns; none that is named: the usual ones."""

    context: str = CONTEXT
    question: str = QUESTION
    answers: str | None = None


def read_question_table(
    location: str, columns: AskedColumns = AskedColumns(), bad: BadRows | None = None
) -> list[Question]:
    """The questions of a table, in its order; a row's id is the line that it begins at (in Parquet its number), from 1.

    Answers are {"text": […], "answer_start": […]}, as published datasets have them, or the text of one, which begins at the character that the column
    answer_start says, or where there is none at its first place in the context. No text: the context has no answer. Raises DataError, with file
    and line, for a column that is not there and, unless `bad` leaves such rows out, for what is none of these.
    """
    content, read, bad = content_of(location), reader_of(location), bad or BadRows()
    answers = columns.answers or next((name for name in ANSWERS if has_columns(location, (name,), content)), ANSWERS[0])
    names = [columns.context, columns.question, answers] + [START] * has_columns(location, (START,), content)
    found = []
    for line, values in read(location, content, names, bad):
        try:
            found.append(question_of(f"{location}:{line}", str(line), names, values))
        except BadRow as error:
            bad.take(error)
    bad.require_some(location, len(found))
    if not found:
        raise DataError(f"{location} has no rows")
    return found


def has_questions(location: str, answers: str | None = None) -> bool:
    """Whether a table has columns by the usual names; `answers`: of which one is named, whether it holds answers as published datasets have them."""
    content = content_of(location)
    if answers is None:
        return any(has_columns(location, (CONTEXT, QUESTION, name), content) for name in ANSWERS)
    first = first_row(location, (answers,), content)
    return bool(first) and isinstance(first[0], dict)


def has_columns(location: str, names: Sequence[str], content: bytes) -> bool:
    """Whether a table has these columns, in its first row where each names its own."""
    return first_row(location, names, content) is not None


def first_row(location: str, names: Sequence[str], content: bytes) -> Sequence[Any] | None:
    """The columns of a table's first row, none of them where there is no row; None where it has not all of them."""
    try:
        return next(reader_of(location)(location, content, names, BadRows(skip=True)), (1, ()))[1]
    except DataError:
        return None


def question_of(place: str, id: str, names: Sequence[str], values: Sequence[Any]) -> Question:
    """A row as a question. Raises DataError; `place` is the file and the line."""
    context, question = (text_in(place, name, value) for name, value in zip(names[:2], values))
    answers = answers_in(place, names[2], values[2], values[3] if len(values) > 3 else None, context)
    return Question(id=id, question=question, context=context, answers=answers, impossible=not answers)


def text_in(place: str, name: str, value: Any) -> str:
    """A text that is not empty; half a surrogate pair is U+FFFD, so that places stay. Raises DataError."""
    if not isinstance(value, str) or not value.strip():
        raise BadRow(
            f"{place}: column {name} is {'empty' if value is None or isinstance(value, str) else f'no text but {shown(value)}'}",
            "empty-text",
        )
    return SURROGATE.sub("\ufffd", value)


def answers_in(place: str, name: str, value: Any, start: Any, context: str) -> tuple[tuple[str, int], ...]:
    """The answers of a row as (text, place of the first character); of one that is not in the context the place is -1. Raises DataError."""
    if isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
        listed = isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts)
        if not (listed and all(isinstance(text, str) for text in texts) and all(type(one) is int for one in starts)):
            raise BadRow(
                f'{place}: column {name} is {shown(value)}; an object has a list of texts in "text" and as many whole numbers in "answer_start"',
                "no-answer-that-can-be-read",
            )
        return tuple((SURROGATE.sub("\ufffd", text), one) for text, one in zip(texts, starts))
    if value is None or value == "":
        return ()
    if not isinstance(value, str):
        raise BadRow(
            f'{place}: column {name} is no answer but {shown(value)}; the text of one is read, or {{"text": […], "answer_start": […]}}',
            "no-answer-that-can-be-read",
        )
    answer = SURROGATE.sub("\ufffd", value)
    if start is None or start == "":
        return ((answer, context.find(answer)),)
    if not (type(start) is int or isinstance(start, str) and start.strip().isdigit()):
        raise BadRow(
            f"{place}: column {START} is {shown(start)}; the place of the answer's first character in the context is read, from 0",
            "no-answer-that-can-be-read",
        )
    return ((answer, int(start)),)
