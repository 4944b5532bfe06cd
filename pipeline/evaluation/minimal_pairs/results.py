"""Accuracy on minimal pairs, by paradigm and phenomenon, with 95% intervals."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.command_line.columns import aligned
from pipeline.evaluation.minimal_pairs.paradigms import Paradigm

TIE = 1e-6
"""A difference of at most this many nats is a tie. Rounding alone causes such differences, for example between two
sentences that have the same words in another order.
"""
QUANTILE = 1.96  # of the standard normal distribution, for a 95% interval


def pair_scores(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """Return the score of each pair, float64 (P,).

    The score is 1 if the good sentence is likelier than the bad sentence, 0.5 for a tie, else 0. `good` and `bad` (P,)
    are the log-probabilities of the sentences in nats.
    """
    difference = good - bad
    return np.where(np.abs(difference) <= TIE, 0.5, difference > 0)


def mean_and_half_width(scores: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the mean of the paradigms' mean scores, and half the width of the 95% interval of this mean.

    `scores` has one array (P,) per paradigm. The interval covers the random choice of pairs within each paradigm,
    but not the choice of paradigms or of the training seed.
    """
    means = [float(values.mean()) for values in scores]
    variance = sum(float(values.var(ddof=1)) / len(values) for values in scores) / len(scores) ** 2
    return sum(means) / len(means), QUANTILE * math.sqrt(variance)


def score_paradigms(
    paradigms: Sequence[Paradigm], texts: Sequence[str], nats: Mapping[str, np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
    """Return {scorer: {paradigm: score of each pair, float64 (P,)}}.

    `texts` are the S sentences; `nats` is {scorer: their log-probabilities in nats, float64 (S,)}.
    """
    index = {text: number for number, text in enumerate(texts)}
    return {
        scorer: {
            paradigm.name: pair_scores(
                values[[index[sentence] for sentence in paradigm.good]],
                values[[index[sentence] for sentence in paradigm.bad]],
            )
            for paradigm in paradigms
        }
        for scorer, values in nats.items()
    }


def mean_accuracies(scores: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, float]:
    """Return {scorer: mean over paradigms of each paradigm's mean score}, from the result of `score_paradigms`."""
    return {scorer: mean_and_half_width(list(values.values()))[0] for scorer, values in scores.items()}


def table(paradigms: Sequence[Paradigm], scores: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """Return the lines of a table: each scorer's accuracy in percent on all pairs, by phenomenon and by paradigm.

    A phenomenon without a name has no line of its own.
    """
    rows = [_row("all paradigms", [paradigm.name for paradigm in paradigms], scores)]
    for phenomenon in sorted({paradigm.phenomenon for paradigm in paradigms}):
        names = [paradigm.name for paradigm in paradigms if paradigm.phenomenon == phenomenon]
        if phenomenon:
            rows.append(_row(phenomenon, names, scores))
        rows += [_row(f"  {name}", [name], scores) for name in names]
    return aligned(["accuracy, %", "pairs", *scores], rows)


def _row(head: str, names: Sequence[str], scores: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """Return the cells of one line: `head`, the number of pairs, and each scorer's accuracy with its interval."""
    first = next(iter(scores.values()))
    cells = [head, f"{sum(len(first[name]) for name in names):,}"]
    for by_paradigm in scores.values():
        mean, half = mean_and_half_width([by_paradigm[name] for name in names])
        cells.append(f"{100 * mean:.1f} ±{100 * half:.1f}")
    return cells
