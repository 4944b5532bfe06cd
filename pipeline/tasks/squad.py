"""Questions on contexts as SQuAD's JSON holds them, versions 1.1 and 2.0."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline import storage
from pipeline.errors import DataError, listed, shown
from pipeline.tasks.content import content_of

SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can write half a pair, which is no character
MISALIGNED = "answer-not-at-its-offset"
UNANSWERED = "no-answer-given"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question, its context, and its answers as (text, place of the first character in the context)."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]
    impossible: bool = False
    """Whether the context has no answer (SQuAD 2.0)."""


def read_questions(location: str) -> list[Question]:
    """The questions of a SQuAD file, which may be gzip, in its order; those to be predicted need no "answers".

    Raises DataError for what is no such file, naming the place in it.
    """
    try:
        whole = json.loads(content_of(location))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{location} is no JSON that can be read ({storage.first_line(error)}): give a SQuAD file"
        ) from error
    if whole and are_answers(whole):
        raise DataError(
            f"{location} has {len(whole):,} ids with answers and no questions: is it swapped with the file of questions? Give a SQuAD file here, and answers as predictions"
        )
    questions = list(questions_of(whole, location))
    doubled = next((id for id, times in Counter(question.id for question in questions).items() if times > 1), None)
    if doubled is not None:
        raise DataError(
            f"{location} has more than one question with the id {shown(doubled)}: predictions are by id, give each its own"
        )
    return questions


def are_answers(whole: Any) -> bool:
    """Whether a parsed file is {id: answer}, as SQuAD's official scripts read predictions."""
    return isinstance(whole, dict) and all(isinstance(answer, str) for answer in whole.values())


def questions_of(whole: Any, location: str) -> Iterator[Question]:
    """The questions of a parsed file."""
    for article, at_article in list_items(whole, "data", f"{location}: "):
        for paragraph, at_paragraph in list_items(article, "paragraphs", f"{at_article}."):
            context = text_at(paragraph, "context", f"{at_paragraph}.")
            for qa, at_qa in list_items(paragraph, "qas", f"{at_paragraph}."):
                yield question_of(qa, context, f"{at_qa}.")


def question_of(qa: Any, context: str, place: str) -> Question:
    """One entry of "qas". An impossible question has no answers, whatever stands there."""
    id, question = text_at(qa, "id", place), text_at(qa, "question", place)
    impossible = "is_impossible" in qa and value_at(qa, "is_impossible", bool, place)
    given = list_items(qa, "answers", place) if "answers" in qa and not impossible else ()
    answers = tuple(
        (text_at(answer, "text", f"{at}."), value_at(answer, "answer_start", int, f"{at}.")) for answer, at in given
    )
    return Question(id=id, question=question, context=context, answers=answers, impossible=impossible)


def value_at(record: Any, key: str, kind: type, place: str) -> Any:
    """A key's value, of this kind. Raises DataError; `place` is the file and the path of the record, ready for the key."""
    if not isinstance(record, dict):
        raise DataError(
            f"{place}{key} is wanted, and there is a {type(record).__name__} where an object should be: give a SQuAD file"
        )
    if key not in record:
        raise DataError(f"{place}{key} is missing, the keys there are {listed(record)}: give a SQuAD file")
    value = record[key]
    if not isinstance(value, kind) or kind is int and isinstance(value, bool):
        raise DataError(
            f"{place}{key} is a {type(value).__name__} where a {kind.__name__} is wanted: give a SQuAD file"
        )
    return value


def text_at(record: Any, key: str, place: str) -> str:
    """A key's text; half a surrogate pair, which no tokenizer takes, is U+FFFD, so that places stay."""
    return SURROGATE.sub("\ufffd", value_at(record, key, str, place))


def list_items(record: Any, key: str, place: str) -> Iterator[tuple[Any, str]]:
    """Each member of a key's list, and its own place."""
    for number, member in enumerate(value_at(record, key, list, place)):
        yield member, f"{place}{key}[{number}]"


def trainable(questions: Sequence[Question]) -> tuple[list[Question], dict[str, int]]:
    """The questions whose first answer stands where it is said to, with the impossible ones, and how many of the others there are, by reason."""
    reasons = [rejection_reason(question) for question in questions]
    kept = [question for question, reason in zip(questions, reasons) if reason is None]
    return kept, dict(Counter(reason for reason in reasons if reason is not None))


def rejection_reason(question: Question) -> str | None:
    """Why a question cannot be learnt from; None where it can."""
    if question.impossible:
        return None
    if not question.answers:
        return UNANSWERED
    text, start = question.answers[0]
    return None if text and start >= 0 and question.context.startswith(text, start) else MISALIGNED
