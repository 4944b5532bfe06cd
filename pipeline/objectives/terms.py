"""Loss terms of an objective: their sums and counts, and their labels and baselines in figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Terms = dict[str, tuple[Tensor, int | Tensor]]
"""Term -> (sum, count) of a batch; callers add up batches and divide once."""
TASK, TEACHER, INTENT = "task", "teacher", "intent"
"""Terms of fine-tuning: the loss against the labels, against a teacher's logits, and against intents of sentences."""
Sums = Mapping[str, tuple[float, float]]
"""Term or score -> (sum, count) over all held-out batches."""


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """Label and baseline of one loss term in figures."""

    term: str
    label: str
    """Label of the axis."""
    guess: str | None = None
    """Name of the metric that is the baseline; None: the term has no baseline."""
    guess_label: str = ""
    guess_is_share: bool = False
    """Whether the metric `guess` is the frequency p of one of two possible answers.

    If so, the baseline is the entropy of (p, 1 - p), which is the loss of guessing by frequency. Otherwise the baseline
    is the metric itself.
    """


def divisors(counts: Mapping[str, Any], weights: Mapping[str, float]) -> dict[str, Any]:
    """Return the divisor of each term's summed loss: the term's count over all ranks / its weight (default 1).

    A count of 0, of a step without masked tokens for instance, becomes 1; its sum is 0. Tensors must be above 0.
    """
    at_least_1 = {term: count if isinstance(count, Tensor) else count or 1 for term, count in counts.items()}
    return {term: count / weights.get(term, 1) for term, count in at_least_1.items()}
