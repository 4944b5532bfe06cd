"""Read questions from tables (CSV, TSV, JSON or Parquet): one question per row, with its context and answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import BadRow, DataError, shown
from pipeline.tasks.bad_rows import BadRows
from pipeline.tasks.content import content_of
from pipeline.tasks.readers import first_row, has_columns, reader_of
from pipeline.tasks.squad import SURROGATE, Question

CONTEXT, QUESTION, START = "context", "question", "answer_start"
ANSWERS = ("answers", "answer")


@dataclass(frozen=True, kw_only=True)
class AskedColumns:
    """Column names of a table of questions.

    If `answers` is None, the answers are in the first column of ANSWERS that the table has.
    """

    context: str = CONTEXT
    question: str = QUESTION
    answers: str | None = None


def read_question_table(
    location: str, columns: AskedColumns = AskedColumns(), bad: BadRows | None = None
) -> list[Question]:
    """Return a table's questions in order.

    A question's id is the number of its first line; in Parquet and JSON lists, the id is the number of the row. Both
    count from 1.

    A row's answers are {"text": […], "answer_start": […]}, as in published data sets, or one text. For one text, the
    column answer_start holds the offset of the text's first character in the context. If this column has no value, the
    first occurrence of the text in the context is used. An empty answer means that the context has no answer.

    Raises DataError for a missing column. A row is bad if its context or question is empty, or if its answers have
    another form. `bad` skips bad rows, or raises DataError with file and line.
    """
    content, read, bad = content_of(location), reader_of(location), bad or BadRows()
    answers = columns.answers or next((name for name in ANSWERS if has_columns(location, (name,), content)), ANSWERS[0])
    names = [columns.context, columns.question, answers] + [START] * has_columns(location, (START,), content)
    questions = []
    for line, values in read(location, content, names, bad):
        try:
            questions.append(_question_of(f"{location}:{line}", str(line), names, values))
        except BadRow as error:
            bad.take(error)
    bad.require_some(location, len(questions))
    if not questions:
        raise DataError(f"{location} has no rows")
    return questions


def has_questions(location: str, answers: str | None = None) -> bool:
    """Return whether a table holds questions.

    If `answers` is None, the table must have the usual columns. Otherwise the first value of the column `answers` must
    have the form of published data sets.
    """
    content = content_of(location)
    if answers is None:
        return any(has_columns(location, (CONTEXT, QUESTION, name), content) for name in ANSWERS)
    first = first_row(location, (answers,), content)
    return bool(first) and isinstance(first[0], dict)


def _question_of(where: str, id: str, names: Sequence[str], values: Sequence[Any]) -> Question:
    """Convert a row to a question; `where` is file and line, for messages. Raises BadRow for an invalid row."""
    context, question = (_text_in(where, name, value) for name, value in zip(names[:2], values))
    answers = _answers_in(where, names[2], values[2], values[3] if len(values) > 3 else None, context)
    return Question(id=id, question=question, context=context, answers=answers, impossible=not answers)


def _text_in(where: str, name: str, value: Any) -> str:
    """Return a column's value, which must be a text that is not blank. Raises BadRow otherwise.

    Each half of a surrogate pair becomes U+FFFD, which keeps the offsets of characters.
    """
    if not isinstance(value, str) or not value.strip():
        raise BadRow(
            f"{where}: column {name} is "
            f"{'empty' if value is None or isinstance(value, str) else f'not text but {shown(value)}'}",
            "empty-text",
        )
    return SURROGATE.sub("\ufffd", value)


def _answers_in(where: str, name: str, value: Any, start: Any, context: str) -> tuple[tuple[str, int], ...]:
    """Return a row's answers as (text, offset of its first character in the context).

    The offset is -1 if `start` is empty and the context lacks the text. Raises BadRow for answers of another form.
    """
    if isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
        listed = isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts)
        if not (
            listed and all(isinstance(text, str) for text in texts) and all(type(start) is int for start in starts)
        ):
            raise BadRow(
                f'{where}: column {name} is {shown(value)}; an object has a list of texts in "text" and equally many '
                'whole numbers in "answer_start"',
                "no-answer-that-can-be-read",
            )
        return tuple((SURROGATE.sub("\ufffd", text), start) for text, start in zip(texts, starts))
    if value is None or value == "":
        return ()
    if not isinstance(value, str):
        raise BadRow(
            f'{where}: column {name} is not an answer but {shown(value)}; give its text, or {{"text": […], '
            '"answer_start": […]}',
            "no-answer-that-can-be-read",
        )
    answer = SURROGATE.sub("\ufffd", value)
    if start is None or start == "":
        return ((answer, context.find(answer)),)
    if not (type(start) is int or isinstance(start, str) and start.strip().isdigit()):
        raise BadRow(
            f"{where}: column {START} is {shown(start)}; it holds the offset of the answer's first character in the "
            "context, from 0",
            "no-answer-that-can-be-read",
        )
    return ((answer, int(start)),)
