"""Exact match and F1 of answers in percent, as in SQuAD's official scripts (evaluate-v1.1.py, evaluate-v2.0.py)."""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from pipeline.errors import DataError
from pipeline.tables.squad import Question

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
Normalise = Callable[[str], str]
"""Function of an answer that returns the text to compare."""


def normalised(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation, then without articles, and with single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(predicted: str, true: str, normalise: Normalise = normalised) -> float:
    """Return 1 if both are equal after normalisation, else 0."""
    return float(normalise(predicted) == normalise(true))


def f1(predicted: str, true: str, normalise: Normalise = normalised) -> float:
    """Return the F1 over words (as multisets); 0 if no word is shared."""
    words, wanted = normalise(predicted).split(), normalise(true).split()
    shared = sum((Counter(words) & Counter(wanted)).values())
    return 2 * shared / (len(words) + len(wanted)) if shared else 0.0


def best_of(
    predicted: str, question: Question, unanswerable: bool, normalise: Normalise = normalised
) -> tuple[float, float]:
    """Return exact match and F1, each the maximum over the question's true answers.

    For a question without answers, the true answer is the empty text. `unanswerable` means that the task has
    unanswerable questions, as SQuAD 2.0 has. Then true answers that are empty after normalisation do not count. If no
    true answer is left, or if the prediction is empty after normalisation, F1 equals exact match.
    """
    true = [text for text, _ in question.answers if normalise(text) or not unanswerable] or [""]
    matches = [exact(predicted, text, normalise) for text in true]
    overlaps = [f1(predicted, text, normalise) for text in true]
    if unanswerable and (true == [""] or not normalise(predicted)):
        overlaps = matches
    return max(matches), max(overlaps)


def score(
    predictions: Mapping[str, str], questions: Sequence[Question], normalise: Normalise = normalised
) -> dict[str, float]:
    """Return exact and f1 in percent, total (number of questions), and missing (number of missing predictions).

    A missing prediction counts as wrong. If any question is impossible, HasAns_exact, NoAns_exact and so on are also
    returned, named as in the 2.0 script. Raises DataError as `require_answers` does.
    """
    unanswerable = any(question.impossible for question in questions)
    require_answers(questions)
    pairs = [
        best_of(predictions[question.id], question, unanswerable, normalise)
        if question.id in predictions
        else (0.0, 0.0)
        for question in questions
    ]
    scores = _means("", pairs) | {"missing": float(sum(question.id not in predictions for question in questions))}
    if unanswerable:
        answerable = [bool(question.answers) for question in questions]
        scores |= _means("HasAns_", [pair for pair, has_answers in zip(pairs, answerable) if has_answers])
        scores |= _means("NoAns_", [pair for pair, has_answers in zip(pairs, answerable) if not has_answers])
    return scores


def require_answers(questions: Sequence[Question]) -> None:
    """Raise DataError if there are no questions, or if a question has no answers and is not marked as impossible."""
    if not questions:
        raise DataError("there are 0 questions to score: give a file with at least 1")
    unanswered = [question.id for question in questions if not question.answers and not question.impossible]
    if unanswered:
        raise DataError(
            f"question {unanswered[0]!r} has 0 answers to be scored against ({len(unanswered)} of {len(questions)} "
            "questions): give a file with answers"
        )


def _means(prefix: str, pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Return mean exact match and F1 in percent, and the number of questions; empty if there are no pairs."""
    if not pairs:
        return {}
    matches, overlaps = (100 * sum(values) / len(pairs) for values in zip(*pairs))
    return {f"{prefix}exact": matches, f"{prefix}f1": overlaps, f"{prefix}total": float(len(pairs))}
