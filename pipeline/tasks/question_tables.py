"""Read questions from tables (CSV, TSV, JSON or Parquet): one question per row, with its context and answers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import BadRow, DataError, shown
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.content import SURROGATE
from pipeline.tables.readers import first_row, has_columns, rows_in
from pipeline.tables.roles import ANSWERS, CONTEXT, QUESTION, START
from pipeline.tables.squad import Question, whole_number, without_text

NUMBER = re.compile(r"(-?\d+)(?:\.0*)?")
"""An offset in a table of text; a column with empty cells is often written with decimals, such as 18.0."""


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

    A row's answers are {"text": […], "answer_start": […]}, as in published data sets, a list of objects as in SQuAD's
    JSON, or one text. For one text, the column answer_start holds the offset of the text's first character in the
    context. If this column has no value, the first occurrence of the text in the context is used. An empty answer means
    that the context has no answer.

    Raises DataError for a missing column. A row is bad if its context or question is empty, or if its answers have
    another form. `bad` skips bad rows, or raises DataError with file and line.
    """
    bad = bad or BadRows()
    answers = columns.answers or next((name for name in ANSWERS if has_columns(location, (name,))), ANSWERS[0])
    names = [columns.context, columns.question, answers] + [START] * has_columns(location, (START,))
    questions = []
    for line, values in rows_in(location, names, bad):
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
    if answers is None:
        return any(has_columns(location, (CONTEXT, QUESTION, name)) for name in ANSWERS)
    first = first_row(location, (answers,))
    value = first[0] if first else None
    return isinstance(value, dict) or isinstance(value, list) and bool(_pairs_in(value))


def _question_of(where: str, id: str, names: Sequence[str], values: Sequence[Any]) -> Question:
    """Convert a row to a question; `where` is file and line, for messages. Raises BadRow for an invalid row."""
    context, question = (_text_in(where, name, value) for name, value in zip(names[:2], values))
    answers = _answers_in(where, names[2], values[2], values[3] if len(values) > 3 else None, context)
    return Question(id=id, question=question, context=context, answers=answers, impossible=without_text(answers))


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
    if isinstance(value, dict | list) and (pairs := _pairs_in(value)) is not None:
        return pairs
    if isinstance(value, dict):
        raise BadRow(
            f'{where}: column {name} is {shown(value)}; an object has a list of texts in "text" and equally many '
            'whole numbers in "answer_start"',
            "no-answer-that-can-be-read",
        )
    if _is_missing(value):
        return ()
    if not isinstance(value, str):
        raise BadRow(
            f'{where}: column {name} is not an answer but {shown(value)}; give its text, or {{"text": […], '
            '"answer_start": […]}',
            "no-answer-that-can-be-read",
        )
    answer = SURROGATE.sub("\ufffd", value)
    if _is_missing(start):
        return ((answer, context.find(answer)),)
    written = NUMBER.fullmatch(start.strip()) if isinstance(start, str) else None
    offset = int(written[1]) if written else whole_number(start)
    if offset is None:
        raise BadRow(
            f"{where}: column {START} is {shown(start)}; it holds the offset of the answer's first character in the "
            "context, from 0",
            "no-answer-that-can-be-read",
        )
    return ((answer, offset),)


def _is_missing(value: Any) -> bool:
    """Return whether a cell is empty; NaN is how tables write an empty cell among numbers."""
    return value is None or value == "" or isinstance(value, float) and value != value


def _pairs_in(value: Any) -> tuple[tuple[str, int], ...] | None:
    """Return the answers of {"text": […], "answer_start": […]}, or of a list of {"text", "answer_start"} as in SQuAD's
    JSON; None for values of another form.
    """
    if isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
    elif all(isinstance(answer, dict) for answer in value):
        texts, starts = ([answer.get(key) for answer in value] for key in ("text", "answer_start"))
    else:
        return None
    if not (isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts)):
        return None
    offsets = [whole_number(start) for start in starts]
    if not all(isinstance(text, str) for text in texts) or None in offsets:
        return None
    return tuple((SURROGATE.sub("\ufffd", text), int(offset or 0)) for text, offset in zip(texts, offsets))
