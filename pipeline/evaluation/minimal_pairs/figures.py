"""Accuracy of a run on minimal pairs: names of its metrics, and text for progress lines and summaries."""

from collections.abc import Mapping
from typing import Any

from pipeline.evaluation.minimal_pairs.scoring import PLL, WORD_L2R

METRICS = {PLL: "heldout/blimp_pll_accuracy", WORD_L2R: "heldout/blimp_pll_word_l2r_accuracy"}
"""Scoring -> name of the metric for this scoring's accuracy: mean over paradigms, from 0 to 1."""
UNIGRAM_ACCURACY = "baseline/unigram_blimp_accuracy"


def blimp_text(accuracies: Mapping[str, float], unigram: float) -> str:
    """Return the accuracies of an evaluation and of the unigram baseline in one line."""
    named = ", ".join(f"{accuracies[metric]:.1%} by {scoring}" for scoring, metric in METRICS.items())
    return f"{named} (unigram baseline {unigram:.1%})"


def blimp_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the summary's row about minimal pairs, as (name, text); empty for a run without evaluation.blimp."""
    accuracies = summary.get("blimp")  # summaries of older versions have no such entry
    if not accuracies:
        return []
    return [("minimal pairs, a fifth", blimp_text(accuracies, summary["baselines"][UNIGRAM_ACCURACY]))]
