"""Draw the differences of an ablation: a dot and an interval per variant and score."""

import math
import textwrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.ablation.outcomes import lower_is_better
from pipeline.ablation.results import AblationResult, better
from pipeline.ablation.table import percent
from pipeline.tracking.curves import BLUE, GREY, RED

LABEL_WIDTH = 24
"""Characters after which a variant's label is wrapped."""


def draw(result: AblationResult) -> Figure:
    """Draw one panel per score: each variant's mean difference to the first variant, with a 95% interval if known.

    A score without any difference has no panel. Blue: significantly better than the first variant; red: significantly
    worse; grey: no significant difference.
    """
    scores = [
        score
        for score in result.scores
        if any(score in row.cells and row.cells[score].difference is not None for row in result.rows)
    ]
    height = 1.6 + 0.45 * len(result.rows)
    figure = Figure(figsize=(2.2 + 2.5 * max(1, len(scores)), height), layout="constrained", facecolor="white")
    panels = list(figure.subplots(1, max(1, len(scores)), sharey=True, squeeze=False)[0])
    figure.suptitle(
        f"{result.name}: difference to {result.rows[0].variant.label}", fontsize="medium", fontweight="bold"
    )
    for axes, score in zip(panels, scores):
        _panel(axes, result, score)
    labels = [textwrap.fill(row.variant.label.replace("$", r"\$"), LABEL_WIDTH) for row in result.rows]
    panels[0].set_yticks(range(len(labels)), labels, fontsize="small")
    panels[0].set_ylim(len(labels) - 0.5, -0.5)
    return figure


def _panel(axes: Axes, result: AblationResult, score: str) -> None:
    """Draw one score's differences."""
    scale = 100 if percent(score) else 1
    axes.axvline(0, color=GREY, linewidth=1, linestyle=":")
    axes.plot(0, 0, "o", color=GREY, markersize=5, fillstyle="none")
    for number, row in enumerate(result.rows):
        cell = row.cells.get(score)
        if number == 0 or cell is None or cell.difference is None:
            if number:
                axes.text(0, number, "not comparable", color=GREY, fontsize="x-small", ha="center", va="center")
            continue
        difference, colour = cell.difference, {1: BLUE, -1: RED, 0: GREY}[better(score, cell)]
        if math.isfinite(difference.low):
            axes.plot([scale * difference.low, scale * difference.high], [number, number], color=colour, linewidth=2)
        axes.plot(scale * difference.mean, number, "o", color=colour, markersize=5)
    axes.grid(color="#dddddd", linewidth=0.6, axis="x")
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize="small")
    axes.locator_params(axis="x", nbins=4)
    unit = "points" if percent(score) else ""
    direction = "← better" if lower_is_better(score) else "better →"
    axes.set_title(score.replace("$", r"\$"), fontsize="small")
    axes.set_xlabel(", ".join(filter(None, [unit, direction])), fontsize="small")
