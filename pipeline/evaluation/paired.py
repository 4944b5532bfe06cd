"""Compare two encoders by paired differences of their scores, with confidence intervals.

Shapes: n seeds; R rows of a development split.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np

CONFIDENCE = 0.95
DRAWS = 1_000
"""Resamples of the bootstrap."""
SAME = 1e-9
"""Width of an interval, relative to means above 1, up to which it comes from rounding alone."""
BATCH_INDICES = 1_000_000
"""Maximum row indices (8 bytes each) that the bootstrap draws at once; this limits its memory."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Score of encoder B minus score of encoder A, with a 95% confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def better(self) -> int:
        """1 if B's score is significantly higher, -1 if A's score is significantly higher, else 0.

        Also 0 if all differences are equal: so few different values say nothing about the spread.
        """
        return 0 if self.exact else int(self.low > 0) - int(self.high < 0)

    @property
    def exact(self) -> bool:
        """Whether all compared pairs differ by the same amount, up to rounding."""
        return self.high - self.low <= SAME * max(1.0, abs(self.mean))


def _stats() -> ModuleType:
    """Return scipy's statistics; imported here because the import takes half a second, and few commands compare."""
    from scipy import stats

    return stats


def over_seeds(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Return the mean of B - A over seeds, with Student's t interval. For n = 1, the interval is infinite.

    `a` and `b` are scores (n,) of the same seeds in the same order. Raises ValueError if their lengths differ or are 0.
    """
    if len(a) != len(b) or not a:
        raise ValueError(f"A has {len(a)} seeds and B has {len(b)}: give both the same number of seeds, 1 or more")
    differences = np.asarray(b, np.float64) - np.asarray(a, np.float64)
    mean = float(differences.mean())
    if len(differences) == 1:
        return Difference(mean=mean, low=-math.inf, high=math.inf)
    quantile = _stats().t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1)
    half = float(quantile * differences.std(ddof=1) / math.sqrt(len(differences)))
    return Difference(mean=mean, low=mean - half, high=mean + half)


def p_value(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the two-sided p-value of the paired t-test over seeds; None for n = 1 or if all differences are equal."""
    difference = over_seeds(a, b)
    if difference.exact or not math.isfinite(difference.low):
        return None
    deviation = (np.asarray(b, np.float64) - np.asarray(a, np.float64)).std(ddof=1) / math.sqrt(len(a))
    return float(2 * _stats().t.sf(abs(difference.mean) / deviation, len(a) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple tests (Holm 1979), in the same order."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def over_rows(
    a: Callable[[np.ndarray], float], b: Callable[[np.ndarray], float], rows: int, draws: int = DRAWS, seed: int = 0
) -> Difference:
    """Return the difference of two models' scores on all R rows, with a percentile bootstrap interval (Efron 1979).

    `a` and `b` map row indices, int64 (R,), to a model's score on these rows. Each of the `draws` resamples uses the
    same rows for both models. For R = 1, the interval has width 0.
    """
    everything = np.arange(rows)
    mean = b(everything) - a(everything)
    if rows == 1:
        return Difference(mean=mean, low=mean, high=mean)
    interval = (
        _stats()
        .bootstrap(
            (everything,),
            lambda indices: b(indices) - a(indices),
            n_resamples=draws,
            batch=max(1, BATCH_INDICES // rows),
            vectorized=False,
            method="percentile",
            confidence_level=CONFIDENCE,
            rng=np.random.Generator(np.random.Philox(seed)),
        )
        .confidence_interval
    )
    return Difference(mean=mean, low=float(interval.low), high=float(interval.high))


def format_difference(difference: Difference, percent: bool) -> str:
    """Return mean and interval as text: in percentage points if `percent` is true, else in the metric's unit."""
    if percent:
        return f"{100 * difference.mean:+.1f} ({100 * difference.low:.1f} to {100 * difference.high:.1f})"
    return f"{difference.mean:+.3f} ({difference.low:.3f} to {difference.high:.3f})"


def verdict(task: str, difference: Difference, *, percent: bool = True, lower_is_better: bool = False) -> str:
    """Return a sentence that says which encoder is better on a task, or why no significant difference was found."""
    if difference.exact and difference.mean == 0:
        return f"no significant difference on {task}: A and B score the same with every seed"
    if not math.isfinite(difference.low):
        return f"no significant difference on {task}: the spread of one seed is unknown; give --seeds 2 or more"
    if difference.exact:  # The models collapsed, or few rows gave equal scores by chance.
        return (
            f"no significant difference on {task}: the difference is "
            f"{format_difference(difference, percent).split()[0]} with every seed, so its spread is unknown; give more "
            "seeds or development rows"
        )
    better = -difference.better if lower_is_better else difference.better
    if better:
        return f"{'B' if better > 0 else 'A'} is better on {task}: {format_difference(difference, percent)}"
    return f"no significant difference on {task}: {format_difference(difference, percent)}; more seeds may show one"
