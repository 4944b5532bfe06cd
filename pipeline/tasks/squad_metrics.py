"""Exact match and F1 of answers, in percent, as SQuAD's official scripts compute them (evaluate-v1.1.py, evaluate-v2.0.py)."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from pipeline.errors import DataError
from pipeline.tasks.squad import Question

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Lower case without ASCII punctuation, then without articles, and with single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(predicted: str, true: str) -> float:
    """1 where both are the same when normalised, else 0."""
    return float(normalised(predicted) == normalised(true))


def f1(predicted: str, true: str) -> float:
    """F1 of the words that both share, each as often as it stands in both; 0 where none is shared."""
    words, wanted = normalised(predicted).split(), normalised(true).split()
    shared = sum((Counter(words) & Counter(wanted)).values())
    return 2 * shared / (len(words) + len(wanted)) if shared else 0.0


def best_of(predicted: str, question: Question, unanswerable: bool) -> tuple[float, float]:
    """Exact match and F1 against the answer that suits each best.

    Where a task has unanswerable questions (2.0), true answers of nothing but articles and punctuation do not count, a question without
    others has the empty answer, and an empty answer's F1 is its exact match.
    """
    true = [text for text, _ in question.answers if normalised(text) or not unanswerable] or [""]
    matches = [exact(predicted, text) for text in true]
    overlaps = [f1(predicted, text) for text in true]
    if unanswerable and (true == [""] or not normalised(predicted)):
        overlaps = matches
    return max(matches), max(overlaps)


def score(predictions: Mapping[str, str], questions: Sequence[Question]) -> dict[str, float]:
    """exact and f1 in percent, total and missing (questions without a prediction, which count as wrong), by the ids of the questions.

    Where any question is impossible, also HasAns_ and NoAns_ exact, f1 and total, as 2.0's script names them. Raises DataError where
    there is no question, or one of 1.1 has no answer to compare with.
    """
    unanswerable = any(question.impossible for question in questions)
    require_answers(questions)
    pairs = [
        best_of(predictions[question.id], question, unanswerable) if question.id in predictions else (0.0, 0.0)
        for question in questions
    ]
    scores = means("", pairs) | {"missing": float(sum(question.id not in predictions for question in questions))}
    if unanswerable:
        has = [bool(question.answers) for question in questions]
        scores |= means("HasAns_", [pair for pair, there in zip(pairs, has) if there])
        scores |= means("NoAns_", [pair for pair, there in zip(pairs, has) if not there])
    return scores


def require_answers(questions: Sequence[Question]) -> None:
    """Raise DataError where nothing can be scored."""
    if not questions:
        raise DataError("there are 0 questions to score: give a file with at least 1")
    bare = [question.id for question in questions if not question.answers and not question.impossible]
    if bare:
        raise DataError(
            f"question {bare[0]!r} has 0 answers to be scored against ({len(bare)} of {len(questions)} questions): give a file with answers"
        )


def means(prefix: str, pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Means of exact match and F1 in percent, and the number of questions; nothing where there are none."""
    if not pairs:
        return {}
    matches, overlaps = (100 * sum(values) / len(pairs) for values in zip(*pairs))
    return {f"{prefix}exact": matches, f"{prefix}f1": overlaps, f"{prefix}total": float(len(pairs))}
