"""Read questions from SQuAD's JSON, versions 1.1 and 2.0."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import DataError, listed, shown
from pipeline.tables.content import SURROGATE, json_value

MISALIGNED = "answer-not-at-its-offset"
UNANSWERED = "no-answer-given"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question, its context, and its answers as (text, offset of its first character in the context)."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    impossible: bool = False
    """Whether the context has no answer (SQuAD 2.0). Such a question may have answers without text."""
    annotators: tuple[tuple[tuple[int, int], ...], ...] = ()
    """For Natural Questions, the short answers of each annotator, as `natural.Words`; empty for other questions."""


def read_questions(location: str) -> list[Question]:
    """Return the questions of a SQuAD file, optionally compressed, in order.

    Questions for prediction may lack "answers". Raises DataError, with the path inside the file, if the file
    does not have SQuAD's format.
    """
    whole = json_value(location, "a SQuAD file")
    if whole and are_answers(whole):
        raise DataError(
            f"{location} has {len(whole):,} ids with answers, but no questions: are the two files swapped? Give "
            "the SQuAD file instead of this file, and this file as --predictions"
        )
    questions = list(_questions_of(whole, location))
    doubled = next((id for id, times in Counter(question.id for question in questions).items() if times > 1), None)
    if doubled is not None:
        raise DataError(
            f"{location} has more than one question with the id {shown(doubled)}: predictions are stored by id, so "
            "give each question an id of its own"
        )
    return questions


def are_answers(whole: Any) -> bool:
    """Return whether a parsed file is {id: answer}, the format of predictions in SQuAD's official scripts."""
    return isinstance(whole, dict) and all(isinstance(answer, str) for answer in whole.values())


def _questions_of(whole: Any, location: str) -> Iterator[Question]:
    """Yield the questions of a parsed file."""
    for article, at_article in _list_items(whole, "data", f"{location}: "):
        for paragraph, at_paragraph in _list_items(article, "paragraphs", f"{at_article}."):
            context = _text_at(paragraph, "context", f"{at_paragraph}.")
            for qa, at_qa in _list_items(paragraph, "qas", f"{at_paragraph}."):
                yield _question_of(qa, context, f"{at_qa}.")


def _question_of(qa: Any, context: str, where: str) -> Question:
    """Convert one entry of "qas". A question that is marked as impossible has no answers, whatever the file says.

    Annotation tools leave out "is_impossible" or write false. Then a list of answers that holds no text means "no
    answer", as in the official script, and a missing list means that the answers are not known.
    """
    id, question = _id_at(qa, where), _text_at(qa, "question", where)
    marked = qa.get("is_impossible") is not None and _value_at(qa, "is_impossible", bool, where)
    known = qa.get("answers") is not None
    answer_items = _list_items(qa, "answers", where) if known and not marked else ()
    answers = tuple(
        (_text_at(answer, "text", f"{at}."), _offset_at(answer, "answer_start", f"{at}."))
        for answer, at in answer_items
    )
    impossible = marked or known and without_text(answers)
    return Question(id=id, question=question, context=context, answers=answers, impossible=impossible)


def without_text(answers: Sequence[tuple[str, int]]) -> bool:
    """Return whether no answer has text, which means that the context has no answer."""
    return not any(text.strip() for text, _ in answers)


def whole_number(value: Any) -> int | None:
    """Return a JSON number as an offset, also one written as 18.0; None for other values."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _id_at(qa: Any, where: str) -> str:
    """Return a question's id as text; some tools number the questions."""
    number = qa.get("id") if isinstance(qa, dict) else None
    return _text_at(qa, "id", where) if type(number) is not int else str(number)


def _offset_at(answer: Any, key: str, where: str) -> int:
    """Return a key's offset. Raises DataError as `_value_at` does."""
    offset = whole_number(answer.get(key)) if isinstance(answer, dict) else None
    return _value_at(answer, key, int, where) if offset is None else offset


def _value_at(record: Any, key: str, kind: type, where: str) -> Any:
    """Return a key's value. Raises DataError if it is missing or not of type `kind`.

    `where` is the file, and the path of `record` inside the file; messages put `where` before the key.
    """
    if not isinstance(record, dict):
        raise DataError(f"{where}{key} must be a key of an object, not of a {type(record).__name__}: give a SQuAD file")
    if key not in record:
        raise DataError(f"{where}{key} is missing (existing keys: {listed(record)}): give a SQuAD file")
    value = record[key]
    if not isinstance(value, kind) or kind is int and isinstance(value, bool):
        raise DataError(f"{where}{key} is a {type(value).__name__}, expected a {kind.__name__}: give a SQuAD file")
    return value


def _text_at(record: Any, key: str, where: str) -> str:
    """Return a key's text; each unpaired surrogate becomes U+FFFD, so offsets stay the same."""
    return SURROGATE.sub("\ufffd", _value_at(record, key, str, where))


def _list_items(record: Any, key: str, where: str) -> Iterator[tuple[Any, str]]:
    """Yield each item of a key's list with the path of the item."""
    for number, member in enumerate(_value_at(record, key, list, where)):
        yield member, f"{where}{key}[{number}]"


def trainable(questions: Sequence[Question]) -> tuple[list[Question], dict[str, int]]:
    """Return the questions that can be trained on, and {reason: number} for the other questions.

    A question can be trained on if it is impossible, or if the context has its first answer at the stated offset.
    """
    reasons = [rejection_reason(question) for question in questions]
    kept = [question for question, reason in zip(questions, reasons) if reason is None]
    return kept, dict(Counter(reason for reason in reasons if reason is not None))


def rejection_reason(question: Question) -> str | None:
    """Return why a question cannot be trained on; None if it can."""
    if question.impossible:
        return None
    if not question.answers:
        return UNANSWERED
    text, start = question.answers[0]
    return None if text and start >= 0 and question.context.startswith(text, start) else MISALIGNED
