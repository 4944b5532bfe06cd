"""Read TriviaQA (Joshi et al. 2017): questions with the aliases of their answers, and evidence in text files.

A folder has the questions in qa/FILE.json, and the texts that may hold their answers below evidence/wikipedia and
evidence/web.
"""

import re
import string
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.errors import BadRow, DataError, shown
from pipeline.files import storage
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.content import SURROGATE, content_of, existing_file, json_value
from pipeline.tables.squad import Question
from pipeline.tasks.metrics.squad import ARTICLES

PUNCTUATION = str.maketrans(dict.fromkeys(f"{string.punctuation}‘’´`", " "))
FOLDERS = {"EntityPages": "wikipedia", "SearchResults": "web"}
"""Key of a question's documents -> folder of their texts below evidence."""
WIKIPEDIA = "Wikipedia"
"""Domain whose questions are answered once, from all their documents; those of the web are answered per document."""
BETWEEN_DOCUMENTS = "\n\n"


def normalised_as_trivia(text: str) -> str:
    """Return a text in lower case, with spaces for punctuation, without articles, and with single spaces.

    Source: triviaqa_evaluation.py. SQuAD's script deletes punctuation instead, and knows fewer quotes.
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def read_trivia(location: str, bad: BadRows | None = None) -> list[Question]:
    """Return the questions of a file in qa/, each with all its evidence, in order.

    In the domain Wikipedia, the context of a question is all its documents, one after the other. In the domain Web,
    each document makes a question of its own, with the id QUESTION--DOCUMENT, as in the official evaluation. All
    aliases are answers. The first answer is the first place in the context that reads like an alias; if there is none,
    all offsets are -1. The test files have questions without answers.

    Raises DataError for a file of another form. `bad` skips documents without a text, or raises DataError.
    """
    whole = json_value(location, "a file of TriviaQA")
    evidence, bad = storage.join(location.rsplit("/", 2)[0], "evidence"), bad or BadRows()
    joined = _value_at(whole, "Domain", str, location) == WIKIPEDIA
    questions = []
    for number, item in enumerate(_value_at(whole, "Data", list, location)):
        questions += _questions_of(item, f"{location}: Data[{number}]", evidence, joined, bad)
    if not questions:
        raise DataError(f"{location} has no questions with evidence in {evidence}")
    return questions


def _questions_of(item: Any, where: str, evidence: str, joined: bool, bad: BadRows) -> list[Question]:
    """Return a question with all its documents if `joined`, else one for each document; none without documents."""
    documents = list(_documents_of(item, where, evidence, bad))
    if not documents:
        if not any(item.get(key) for key in FOLDERS):  # otherwise the missing files were counted
            bad.take(BadRow(f"{where} names no document, so its question has no evidence", "no-evidence"))
        return []
    id, question = _value_at(item, "QuestionId", str, where), _value_at(item, "Question", str, where)
    contexts = [(f"{id}--{name}", text) for name, text in documents]
    if joined:
        contexts = [(id, BETWEEN_DOCUMENTS.join(text for _, text in documents))]
    aliases = _aliases_of(item, where)
    return [_question_of(key, question, context, aliases) for key, context in contexts]


def _documents_of(item: Any, where: str, evidence: str, bad: BadRows) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each of a question's documents."""
    for key, folder in FOLDERS.items():
        for document in _value_at(item, key, list, where) if key in item else ():
            name = _value_at(document, "Filename", str, f"{where}.{key}")
            path = existing_file(storage.join(evidence, folder, name))
            if path is None:
                message = f"{where}.{key}: {evidence}/{folder} has no file {shown(name)}, the evidence of this question"
                bad.take(BadRow(message, "no-evidence"))
            else:
                yield name, content_of(path).decode("utf-8", "replace")


def _aliases_of(item: Any, where: str) -> list[str]:
    """Return the texts that the official evaluation accepts as answers, normalised; empty for a test file."""
    if "Answer" not in item:
        return []
    answer, where = _value_at(item, "Answer", dict, where), f"{where}.Answer"
    human = _value_at(answer, "HumanAnswers", list, where) if "HumanAnswers" in answer else []
    aliases = [*_value_at(answer, "NormalizedAliases", list, where), *human]
    return list(dict.fromkeys(normalised_as_trivia(str(alias)) for alias in aliases))


def _value_at(record: Any, key: str, kind: type, where: str) -> Any:
    """Return a key's value. Raises DataError if it is missing or not of type `kind`."""
    if not isinstance(record, dict) or not isinstance(record.get(key), kind):
        raise DataError(f"{where} has no {key} of type {kind.__name__}: give a file of TriviaQA")
    return record[key]


def _question_of(id: str, question: str, context: str, aliases: Sequence[str]) -> Question:
    """Return a question whose first answer is the place of an alias in the context, if there is one."""
    question, context = SURROGATE.sub("\ufffd", question), SURROGATE.sub("\ufffd", context)
    found = alias_place(context, aliases)
    answers = ((context[slice(*found)], found[0]),) if found else ()
    others = tuple((alias, -1) for alias in aliases)
    return Question(id=id, question=question, context=context, answers=(*answers, *others))


BETWEEN_WORDS = r"[\W_]+(?:(?:a|an|the)[\W_]+)*"
"""Pattern between the words of an alias, from which normalisation has removed articles."""


def alias_place(context: str, aliases: Sequence[str]) -> tuple[int, int] | None:
    """Return start and end of the first place in a text whose words are those of an alias; None if there is none.

    The case does not matter, nor do punctuation, white space and articles between the words. Of several aliases at one
    place, the longest is taken. (The official conversion to SQuAD's format takes the first alias of the list that
    occurs anywhere, even within a word.)
    """
    words = [normalised_as_trivia(alias).split() for alias in aliases]
    patterns = [BETWEEN_WORDS.join(map(re.escape, own)) for own in words if own]
    if not patterns:
        return None
    pattern = rf"(?<!\w)(?:{'|'.join(sorted(patterns, key=len, reverse=True))})(?!\w)"
    match = re.search(pattern, context, re.IGNORECASE)
    return match.span() if match else None
