"""Draw a corpus: characters by source, shares of dropped documents, and the lengths of rows."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from pipeline.config.data import Sampling
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.show.style import BLUE, COLOURS, LIGHT, RED, plain, tidy, white_figure
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import make_examples
from pipeline.text.vocabulary import Vocabulary
from pipeline.tracking.curves import GREY

BARS = 20
"""Number of bars in the histogram of row lengths."""
MOST_SOURCES = 12
"""Maximum number of sources that have their own bar."""
LONGEST_NAME = 34
"""Maximum number of characters of a source's name. Of a longer name, only the end is shown."""


@dataclass(frozen=True, kw_only=True)
class RowFill:
    """Lengths of rows in a sample of windows."""

    lengths: np.ndarray
    """int64 (rows,): tokens of each row."""
    maximum: int
    """sampling.maximum_length."""

    @property
    def share(self) -> float:
        """Share of the maximum length that the rows use on average."""
        return float(self.lengths.mean() / self.maximum)


def row_fill(corpus: Corpus, vocabulary: Vocabulary, sampling: Sampling, windows: int) -> RowFill:
    """Make the rows of at most `windows` training windows, evenly spaced, and return their lengths."""
    tokenizer = CachedTokenizer(vocabulary)
    lengths = []
    for index in np.unique(np.linspace(0, len(corpus.train) - 1, windows).astype(int)).tolist():
        documents = read_window(corpus, corpus.train[index])
        examples = make_examples(documents, tokenizer, sampling, seed=0, epoch=0, window=index)
        lengths.append(np.diff(examples["ids"].combine_chunks().offsets.to_numpy()))
    return RowFill(lengths=np.concatenate(lengths).astype(np.int64), maximum=sampling.maximum_length)


def characters(corpus: Corpus) -> dict[str, int]:
    """Return source -> characters, the largest source first. Sources after the first MOST_SOURCES are added up."""
    ordered = Counter({location: about["characters"] for location, about in corpus.sources.items()}).most_common()
    rest = ordered[MOST_SOURCES:]
    return dict(ordered[:MOST_SOURCES]) | ({f"{len(rest)} more": sum(n for _, n in rest)} if rest else {})


def _dropped_shares(corpus: Corpus) -> dict[str, dict[str, float]]:
    """Return reason -> source -> share of the source's documents or pieces that were dropped for this reason.

    The denominator is the number of the source's kept pieces, plus the number of its documents and pieces dropped for
    any reason. Reasons are ordered by their total, and sources as in `characters`. Sources without their own bar are
    left out.
    """
    reasons = [reason for reason, _ in Counter(corpus.dropped).most_common()]
    sources = [name for name in characters(corpus) if name in corpus.sources]
    totals = {name: corpus.sources[name]["pieces"] + sum(corpus.sources[name]["dropped"].values()) for name in sources}
    return {
        reason: {name: corpus.sources[name]["dropped"].get(reason, 0) / max(1, totals[name]) for name in sources}
        for reason in reasons
    }


def lines(corpus: Corpus, fill: RowFill | None) -> list[str]:
    """Return the content of the picture as lines of text."""
    every = max(1, corpus.counts["characters"])
    result = [f"{corpus.counts['characters']:,} characters in {corpus.counts['documents']:,} documents"]
    result += [f"  {n / every:6.1%}  {name}" for name, n in characters(corpus).items()]
    pieces, dropped = corpus.counts["pieces"], sum(corpus.dropped.values())
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in Counter(corpus.dropped).most_common())
    result.append(f"dropped {dropped:,} of {pieces + dropped:,} documents or pieces" + f": {reasons}" * bool(reasons))
    if fill is not None:
        full = float((fill.lengths == fill.maximum).mean())
        result.append(
            f"rows use {fill.share:.1%} of {fill.maximum} tokens on average, {full:.1%} use all "
            f"({len(fill.lengths):,} rows); a batch with padding would waste {1 - fill.share:.1%}"
        )
    return result


def draw(corpus: Corpus, fill: RowFill | None, title: str) -> Figure:
    """Draw characters by source and dropped shares by source; draw a histogram of row lengths if `fill` is given."""
    sources = len(characters(corpus))
    figure = white_figure(12.5 if fill is not None else 9.0, 2.6 + 0.3 * max(3, sources))
    panels = figure.subplots(1, 2 if fill is None else 3, width_ratios=[1, 1] if fill is None else [1, 1, 1.1])
    _sources(panels[0], corpus)
    _dropped(panels[1], corpus)
    if fill is not None:
        _row_fill(panels[2], fill)
    figure.suptitle(plain(title), fontsize="medium", fontweight="bold")
    return figure


def _name(location: str) -> str:
    return plain(location if len(location) <= LONGEST_NAME else f"…{location[1 - LONGEST_NAME :]}")


def _sources(axes: Axes, corpus: Corpus) -> None:
    counts = characters(corpus)
    bars = axes.barh(range(len(counts)), list(counts.values()), height=0.6, color=BLUE)
    axes.bar_label(bars, labels=[f"{n / sum(counts.values()):.0%}" for n in counts.values()], padding=3, color=GREY)
    axes.set_yticks(range(len(counts)), [_name(location) for location in counts], fontsize="small")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.set(
        title="Characters by source", xlim=(0, 1.18 * max(counts.values())), ylim=(max(3, len(counts)) - 0.4, -0.6)
    )
    tidy(axes)
    axes.grid(visible=False, axis="y")


def _dropped(axes: Axes, corpus: Corpus) -> None:
    """Draw a bar per source, with a segment per reason."""
    shares = _dropped_shares(corpus)
    sources = [name for name in characters(corpus) if name in corpus.sources]
    left = np.zeros(len(sources))
    for (reason, by_source), colour in zip(shares.items(), (*COLOURS[1:], *[LIGHT] * len(shares))):
        widths = np.array([by_source[name] for name in sources])
        axes.barh(range(len(sources)), widths, 0.6, left, color=colour, label=plain(reason))
        left += widths
    axes.set_yticks(range(len(sources)), [""] * len(sources))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    axes.set(xlim=(0, max(0.01, 1.1 * float(left.max()))), ylim=(max(3, len(sources)) - 0.4, -0.6))
    axes.set(title="Dropped, of documents and pieces" if shares else "Nothing was dropped")
    tidy(axes)
    axes.grid(visible=False, axis="y")
    if shares:
        axes.legend(frameon=False, fontsize="small", loc="lower right")


def _row_fill(axes: Axes, fill: RowFill) -> None:
    shares = fill.lengths / fill.maximum
    heights, edges = np.histogram(shares, BARS, (0, 1))
    axes.bar(edges[:-1], heights / len(shares), np.diff(edges), align="edge", color=BLUE, edgecolor="white")
    axes.axvline(fill.share, color=RED, linewidth=1.2, label=f"mean {fill.share:.1%}")
    axes.set(title=f"Tokens per row, of {fill.maximum}", xlabel="share of the maximum length", ylabel="share of rows",
             xlim=(0, 1.01))  # fmt: skip
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    tidy(axes)
    axes.legend(frameon=False, fontsize="small", loc="upper left")
