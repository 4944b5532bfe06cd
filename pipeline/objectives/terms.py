"""Loss terms: what an objective returns for a batch, and what is reported of each term."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

Terms = dict[str, tuple[Tensor, int | Tensor]]
"""Term -> (sum, count) of a batch; callers add up batches and divide once."""
Sums = Mapping[str, tuple[float, float]]
"""Term or score -> (sum, count) over all held-out batches."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Label and baseline of one loss term in pictures."""

    term: str
    label: str
    """Label of its axis."""
    guess: str
    """Metric of its baseline."""
    guess_label: str
    guess_is_share: bool = False
    """The baseline is the share of the commoner of two answers, whose entropy is the loss of guessing by frequency."""


def divisors(counts: Mapping[str, int], weights: Mapping[str, float]) -> dict[str, float]:
    """Return what each term's sum is divided by: its count over all ranks, over its weight (1 where not given)."""
    return {term: count / weights.get(term, 1) for term, count in counts.items()}
