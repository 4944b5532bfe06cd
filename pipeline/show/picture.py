"""Draw the statistics of a corpus: histograms of lengths, and bars of drop reasons."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from pipeline.corpus.prepared import Corpus
from pipeline.show.statistics import Statistics
from pipeline.tracking.curves import BLUE, GREY, RED

SHOWN = 0.99
"""Minimum share of the lengths that a histogram shows."""
BARS = 50
"""Approximate number of bars of a histogram."""
ROOM = 6
"""The panel of drop reasons has room for at least this many bars, so a single bar does not fill the panel."""
TITLES = {
    "characters per piece": "Pieces of documents, in characters",
    "words per sentence": "Sentences, in words",
    "tokens per sentence": "Sentences, in tokens",
}
"""Kind of length -> title of its panel."""


def draw(statistics: Statistics, corpus: Corpus) -> Figure:
    """Draw one panel per kind of length, and one for drop reasons."""
    rows = 2 if len(statistics.lengths) == 3 else 1
    figure = Figure(
        figsize=(5.2 * (len(statistics.lengths) + 1) / rows, 3.5 * rows + 0.5), layout="constrained", facecolor="white"
    )
    panels = (
        figure.subplots(rows, (len(statistics.lengths) + 1) // rows).flat
        if rows == 2
        else figure.subplots(1, len(statistics.lengths) + 1)
    )
    *first, last = panels
    for axes, (name, lengths) in zip(first, statistics.lengths.items()):
        _histogram(axes, name, lengths)
    _dropped(last, corpus.dropped)
    figure.suptitle(
        f"{corpus.counts['documents']:,} documents in {corpus.counts['pieces']:,} pieces, "
        f"{corpus.counts['characters']:,} characters\n"
        f"lengths in a sample of {statistics.windows} of {len(corpus.train)} training windows",
        fontsize="medium",
    )
    return figure


def _histogram(axes: Axes, name: str, lengths: np.ndarray) -> None:
    """Draw a histogram with the median marked."""
    edges = bar_edges(lengths)
    heights, _ = np.histogram(lengths, edges)
    axes.bar(edges[:-1], heights, np.diff(edges), align="edge", color=BLUE, edgecolor="white", linewidth=0.4)
    median = float(np.median(lengths))
    axes.axvline(median, color=RED, linewidth=1.2, label=f"median {median:,.0f}")
    left_out = int(len(lengths) - heights.sum())
    axes.set(
        title=TITLES[name],
        xlabel=f"{name}" + (f"; {left_out:,} longer, up to {lengths.max():,}" if left_out else ""),
        ylabel=name.split()[-1] + "s",
        xlim=(0, edges[-1]),
    )
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def bar_edges(lengths: np.ndarray) -> np.ndarray:
    """Return the edges of bars: equally spaced integers from 0 that enclose at least SHOWN of the lengths."""
    longest = int(np.quantile(lengths, SHOWN, method="inverted_cdf"))
    step = max(1, -(-longest // BARS))
    return np.arange(0, longest + step + 1, step)


def _dropped(axes: Axes, counts: dict[str, int]) -> None:
    """Draw one bar per drop reason, the most frequent at the top; write a text if nothing was dropped."""
    axes.set_title(f"Dropped: {sum(counts.values()):,}")
    if not counts:
        axes.text(0.5, 0.5, "nothing was dropped", ha="center", va="center", color=GREY, transform=axes.transAxes)
        axes.set_axis_off()
        return
    reasons = sorted(counts, key=lambda reason: -counts[reason])
    bars = axes.barh(reasons, [counts[reason] for reason in reasons], height=0.6, color=BLUE)
    axes.bar_label(bars, labels=[f"{counts[reason]:,}" for reason in reasons], padding=3, color=GREY)
    axes.set(
        xscale="symlog",
        xlabel="documents or pieces, logarithmic",
        xlim=(0, 8 * max(counts.values())),
        ylim=(max(len(reasons), ROOM) - 0.4, -0.6),
    )
    axes.xaxis.set_ticks([])
    axes.xaxis.set_ticks([], minor=True)
    axes.spines[["top", "right"]].set_visible(False)
