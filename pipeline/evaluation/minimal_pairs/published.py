"""Published accuracies on minimal pairs, to print beside one's own."""

from collections.abc import Sequence
from typing import NamedTuple

from pipeline.command_line.columns import aligned
from pipeline.evaluation.minimal_pairs.paradigms import PARADIGMS, Paradigm

SUPPLEMENT = ("hypernym", "qa_congruence_easy", "qa_congruence_tricky", "subject_aux_inversion", "turn_taking")
"""Paradigms of the supplement to BLiMP of the BabyLM challenge."""


class Published(NamedTuple):
    """Accuracies of a published model in percent: means over paradigms, on the BabyLM challenge's filtered pairs."""

    model: str
    words: str
    epochs: str
    blimp: float
    supplement: float | None
    source: str


PUBLISHED = (
    Published("GPT-2 98 M, baseline of 2026", "10 M", "≤ 10", 65.1, 57.3, "babylm-org/babylm-eval"),
    Published("GPT-BERT 31 M, scored as masked", "10 M", "≤ 10", 70.4, 63.7, "babylm/evaluation-pipeline-2025"),
    Published("GPT-BERT, best of 2025's baselines", "10 M", "≤ 10", 71.7, 63.2, "babylm/evaluation-pipeline-2025"),
    Published("GPT-BERT 30 M, winner of 2024", "10 M", "~2,300", 81.2, None, "arXiv 2410.24159"),
    Published("GPT-BERT causal-focus, 2025", "100 M", "≤ 10", 79.3, 70.4, "babylm/evaluation-pipeline-2025"),
    Published("masked diffusion, winner of 2025", "100 M", "≤ 10", 78.2, 73.6, "arXiv 2509.05056"),
    Published("GPT-BERT 119 M", "100 M", "any", 86.1, None, "arXiv 2410.24159"),
)


def beside_published(paradigms: Sequence[Paradigm], selection: str, accuracy: float) -> list[str]:
    """Return the lines of a table: one's own accuracy (0 to 1) by PLL, and the published ones on the same paradigms.

    `paradigms` are those that were read, before `selection`. Empty if they are neither BLiMP nor its supplement.
    """
    names = {paradigm.name for paradigm in paradigms}
    if names == set(PARADIGMS):
        benchmark, scores = "BLiMP", {row: row.blimp for row in PUBLISHED}
    elif names == set(SUPPLEMENT):
        benchmark, scores = "supplement", {row: row.supplement for row in PUBLISHED if row.supplement is not None}
    else:
        return []
    # No number of a pair shows whether the supplement lacks some, so its pairs are counted.
    whole = benchmark == "BLiMP" and all(paradigm.whole for paradigm in paradigms)
    count = f"{sum(len(paradigm.good) for paradigm in paradigms):,}"
    part = "the whole" if whole else f"{count} filtered pairs" if benchmark == "BLiMP" else f"{count} pairs"
    scored = part if selection == "all" else f"{selection} of {part}"
    rows = [[f"this model ({scored})", "", "", f"{100 * accuracy:.1f}", "by PLL"]]
    rows += [[row.model, row.words, row.epochs, f"{score:.1f}", row.source] for row, score in scores.items()]
    return [
        f"beside published models of other text, on the filtered {benchmark} of the BabyLM challenge:",
        *aligned([f"{benchmark}, %", "words", "epochs", "score", "source"], rows),
    ]
