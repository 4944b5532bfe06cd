"""Accuracy on minimal pairs, by paradigm and phenomenon, with intervals."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.columns import aligned
from pipeline.minimal_pairs.paradigms import Paradigm

TIE = 1e-6
"""Nats: a smaller difference is rounding, such as that of the same words in another order."""
QUANTILE = 1.96  # of the normal distribution, for 95%


def pair_scores(good: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """Return 1 where the good sentence (P,) is likelier than the bad one, 0 where it is not, a half for ties."""
    difference = good - bad
    return np.where(np.abs(difference) <= TIE, 0.5, difference > 0)


def mean_and_half_width(scores: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the mean over paradigms of their mean scores, and half the width of its 95% interval.

    The interval is over pairs, drawn within each paradigm: it says nothing about other paradigms or training seeds.
    """
    means = [float(values.mean()) for values in scores]
    variance = sum(float(values.var(ddof=1)) / len(values) for values in scores) / len(scores) ** 2
    return sum(means) / len(means), QUANTILE * math.sqrt(variance)


def score_paradigms(
    paradigms: Sequence[Paradigm], nats: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, np.ndarray]]:
    """Return scorer -> paradigm -> the score of each pair (P,), from scorer -> sentence -> nats."""
    return {
        scorer: {
            paradigm.name: pair_scores(
                np.array([by_sentence[sentence] for sentence in paradigm.good]),
                np.array([by_sentence[sentence] for sentence in paradigm.bad]),
            )
            for paradigm in paradigms
        }
        for scorer, by_sentence in nats.items()
    }


def table(paradigms: Sequence[Paradigm], scores: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """Return lines: accuracy in percent of each scorer on everything, each phenomenon and each paradigm."""
    rows = [_row("all paradigms", [paradigm.name for paradigm in paradigms], scores)]
    for phenomenon in sorted({paradigm.phenomenon for paradigm in paradigms}):
        names = [paradigm.name for paradigm in paradigms if paradigm.phenomenon == phenomenon]
        rows.append(_row(phenomenon, names, scores))
        rows += [_row(f"  {name}", [name], scores) for name in names]
    return aligned(["accuracy, %", "pairs", *scores], rows)


def _row(head: str, names: Sequence[str], scores: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """Return the cells of one line: the number of pairs, and each scorer's accuracy with its interval."""
    first = next(iter(scores.values()))
    cells = [head, f"{sum(len(first[name]) for name in names):,}"]
    for by_paradigm in scores.values():
        mean, half = mean_and_half_width([by_paradigm[name] for name in names])
        cells.append(f"{100 * mean:.1f} ±{100 * half:.1f}")
    return cells
