"""Metrics of the ranking of each question's candidate answers: mean average precision and mean reciprocal rank.

As is usual for WikiQA and TREC QA ("clean" sets, Rao et al. 2016; Garg et al. 2020), a question counts only if it has a
right and a wrong candidate. Among candidates with equal scores the wrong ones come first, so that a model that gives
the same score to all gains nothing from the order of a file (trec_eval orders them by their names instead).
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np


def mean_average_precision(probabilities: np.ndarray, labels: np.ndarray, questions: Sequence[str]) -> float:
    """Return the mean over questions of the mean precision at the rank of each right candidate.

    `probabilities` are float (N, 2), column 1 for right; `labels` (N,) are 1 for right; `questions` (N,) are the ids of
    the candidates' questions. The result is 0 if no question counts, or if a probability is not finite.
    """
    return _mean_over_questions(_average_precision, probabilities, labels, questions)


def mean_reciprocal_rank(probabilities: np.ndarray, labels: np.ndarray, questions: Sequence[str]) -> float:
    """Return the mean over questions of 1 / (rank of the first right candidate); arguments as above."""
    return _mean_over_questions(_reciprocal_rank, probabilities, labels, questions)


def _average_precision(right: np.ndarray) -> float:
    """Return the mean precision at the right candidates; `right` is bool (candidates,), best first."""
    return float((np.cumsum(right) / np.arange(1, len(right) + 1))[right].mean())


def _reciprocal_rank(right: np.ndarray) -> float:
    """Return 1 / (rank of the first right candidate)."""
    return 1 / (1 + int(right.argmax()))


def _mean_over_questions(
    measure: Callable[[np.ndarray], float], probabilities: np.ndarray, labels: np.ndarray, questions: Sequence[str]
) -> float:
    """Return the mean of a measure over the questions that count; 0 if it is undefined."""
    if not np.isfinite(probabilities).all():
        return 0.0
    values = [measure(right) for right in _ranked(probabilities[:, 1], labels > 0, questions)]
    return float(np.mean(values)) if values else 0.0


def _ranked(scores: np.ndarray, right: np.ndarray, questions: Sequence[str]) -> Iterator[np.ndarray]:
    """Yield for each question that counts whether its candidates are right, best first."""
    _, numbers = np.unique(np.asarray(questions), return_inverse=True)
    order = np.lexsort((right, -scores, numbers))
    for ranked in np.split(right[order], np.flatnonzero(np.diff(numbers[order])) + 1):
        if 0 < ranked.sum() < len(ranked):
            yield ranked


RANKINGS: dict[str, Callable[[np.ndarray, np.ndarray, Sequence[str]], float]] = {
    "map": mean_average_precision,
    "mrr": mean_reciprocal_rank,
}
"""Metrics of tasks whose rows are pairs of a question and a candidate answer, and whose ids are those of questions."""
