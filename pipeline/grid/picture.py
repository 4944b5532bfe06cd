"""Draw a confusion matrix, and the scores of all seeds of a grid."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from pipeline.finetune.table import Reported
from pipeline.tasks.units import is_share
from pipeline.tracking.curves import BLUE, GREY

WRITTEN = 20
"""Maximum number of classes for which counts are written into the cells."""
LONGEST_NAME = 24
"""Maximum number of characters of a class name."""
INK = 0.55
"""Cells above this share of their row are dark, so their counts are written in white."""


def draw_confusion(confusion: Sequence[Sequence[int]], labels: Sequence[str], title: str) -> Figure:
    """Draw a confusion matrix of counts (classes, classes): a row per true class, a column per predicted class.

    The colour of a cell shows the cell's share of its row. For at most WRITTEN classes, each cell also shows its count.
    """
    counts = np.asarray(confusion, np.int64)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names, written = [short(label) for label in labels], len(labels) <= WRITTEN
    cells = max(2.2, (0.62 if written else 0.16) * len(labels))  # inches
    figure = Figure(
        figsize=(cells + 0.09 * max(map(len, names)) + 2.0, cells + 0.09 * max(map(len, names)) + 1.2),
        layout="constrained",
    )
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(
        range(len(names)), names, rotation=90 if len(names) > 3 else 0, fontsize="small" if written else "xx-small"
    )
    axes.set_yticks(range(len(names)), names, fontsize="small" if written else "xx-small")
    axes.set_xlabel("answer")
    axes.set_ylabel("label")
    axes.set_title(title, fontsize="medium")
    for row, column in np.ndindex(*counts.shape) if written else ():
        text = f"{counts[row, column]:,}\n{100 * shares[row, column]:.0f}%"
        axes.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=7,
            color="white" if shares[row, column] > INK else "black",
        )
    figure.colorbar(image, ax=axes, label="share of the label's rows", shrink=0.7)
    return figure


def short(label: str) -> str:
    """Return a label on one line; the middle of a long label becomes an ellipsis.

    Dollar signs are escaped, because matplotlib treats text between dollar signs as a formula.
    """
    line = " ".join(label.split())
    cut = line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME // 2]}…{line[-(LONGEST_NAME // 2 - 1) :]}"
    return cut.replace("$", r"\$")


def draw_scores(rows: Sequence[Reported]) -> Figure | None:
    """Draw one line per row of the result table: a dot per seed, a bar at the median, and a cross at the baseline.

    Scores are in percent. Rows with values in other units, such as mean absolute errors, are left out; None if no row
    is left.
    """
    shares = [row for row in rows if is_share(row.name)]
    if not shares:
        return None
    figure = Figure(figsize=(7.5, 1.5 + 0.4 * len(shares)), layout="constrained", facecolor="white")
    axes = figure.subplots()
    for number, row in enumerate(shares):
        values = [100 * value for value in row.values]
        axes.plot(values, [number] * len(values), "o", color=BLUE, alpha=0.6, markersize=6)
        axes.plot(100 * row.median, number, "|", color=BLUE, markersize=18, markeredgewidth=2)
        if row.baseline is not None:
            axes.plot(100 * row.baseline, number, "x", color=GREY, markersize=6)
    names = [short(f"{row.task}, {row.name}") for row in shares]
    axes.set_yticks(range(len(names)), names, fontsize="small")
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(color="#dddddd", linewidth=0.6, axis="x")
    axes.set_axisbelow(True)
    axes.set_xlabel("score, percent")
    axes.set_title("dots: seeds; bar: median; cross: baseline without a model", fontsize="small", color=GREY)
    return figure
