"""Compare two encoders by paired differences of their scores, with confidence intervals.

n seeds, R rows of a development split.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
DRAWS = 1_000
BATCH_INDICES = 1_000_000
"""Maximum row indices of one bootstrap batch, 8 bytes each."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """B's score minus A's, with its 95% confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def better(self) -> int:
        """1 if B's score is significantly higher, -1 if A's is, else 0; always 0 if all differences are equal."""
        return 0 if self.exact else int(self.low > 0) - int(self.high < 0)

    @property
    def exact(self) -> bool:
        """Whether all compared pairs differ by the same amount."""
        return self.low == self.high


def over_seeds(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Return the mean difference over seeds, with Student's t interval for n seeds; infinite for n = 1.

    Raises ValueError if the numbers of seeds differ or are 0.
    """
    if len(a) != len(b) or not a:
        raise ValueError(f"{len(a)} seeds of A and {len(b)} of B: both need equally many, at least one")
    differences = np.asarray(b, np.float64) - np.asarray(a, np.float64)
    mean = float(differences.mean())
    if len(differences) == 1:
        return Difference(mean=mean, low=-math.inf, high=math.inf)
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1)
    half = float(quantile * differences.std(ddof=1) / math.sqrt(len(differences)))
    return Difference(mean=mean, low=mean - half, high=mean + half)


def over_rows(
    a: Callable[[np.ndarray], float], b: Callable[[np.ndarray], float], rows: int, draws: int = DRAWS, seed: int = 0
) -> Difference:
    """Return the difference of two models' scores on all R rows, with a percentile bootstrap interval (Efron 1979).

    Each resample takes the same rows for both models. `a` and `b` take row indices, int64 (R,), and return the score of
    those rows.
    """
    everything = np.arange(rows)
    mean = b(everything) - a(everything)
    if rows == 1:
        return Difference(mean=mean, low=mean, high=mean)
    interval = stats.bootstrap(
        (everything,),
        lambda indices: b(indices) - a(indices),
        n_resamples=draws,
        batch=max(1, BATCH_INDICES // rows),
        vectorized=False,
        method="percentile",
        confidence_level=CONFIDENCE,
        rng=np.random.Generator(np.random.Philox(seed)),
    ).confidence_interval
    return Difference(mean=mean, low=float(interval.low), high=float(interval.high))


def format_difference(difference: Difference, percent: bool) -> str:
    """Return mean and interval as text: in percentage points, or in the metric's unit."""
    if percent:
        return f"{100 * difference.mean:+.1f} ({100 * difference.low:.1f} to {100 * difference.high:.1f})"
    return f"{difference.mean:+.3f} ({difference.low:.3f} to {difference.high:.3f})"


def verdict(task: str, difference: Difference, *, percent: bool = True, lower_is_better: bool = False) -> str:
    """Return one sentence on what a difference over seeds shows."""
    if difference.exact and difference.mean == 0:
        return f"no difference can be told on {task}: A and B score the same with every seed"
    if not math.isfinite(difference.low):
        return f"no difference can be told on {task}: one seed shows no spread; give --seeds 2 or more"
    if difference.exact:  # happens with collapsed models, and by chance with few rows
        return (
            f"no difference can be told on {task}: the difference is "
            f"{format_difference(difference, percent).split()[0]} with every seed, so its spread is unknown; give more "
            "seeds or development rows"
        )
    better = -difference.better if lower_is_better else difference.better
    if better:
        return f"{'B' if better > 0 else 'A'} is better on {task}: {format_difference(difference, percent)}"
    return f"no difference can be told on {task}: {format_difference(difference, percent)}; more seeds would narrow it"
