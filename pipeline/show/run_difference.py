"""Compare the logged losses of two runs with the same settings, such as an uninterrupted run and a resumed run."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from pipeline.errors import ConfigError
from pipeline.objectives.table import CURVES
from pipeline.show.style import BLUE, RED, plain, tidy, white_figure
from pipeline.tracking.curves import GREY, Points

ROWS = "stream/rows_crc32"
"""Metric: checksum of all rows up to a step. One different row changes the checksum at all later steps."""
PROMISED = 1e-5
"""Largest difference in nats that is called rounding. The limit is for float32; other precisions round more."""


@dataclass(frozen=True, kw_only=True)
class TermDifference:
    """One loss term of both runs, at the S steps that both runs logged."""

    term: str
    label: str
    steps: np.ndarray
    """int64 (S,)."""
    losses: np.ndarray
    """float64 (2, S)."""

    @property
    def difference(self) -> np.ndarray:
        """Second run minus first, in nats, float64 (S,)."""
        return self.losses[1] - self.losses[0]


@dataclass(frozen=True, kw_only=True)
class RunDifference:
    """Differences between two runs."""

    terms: tuple[TermDifference, ...]
    same_rows: int
    """Number of steps at which both checksums are equal, which means that both runs have read the same rows so far."""
    compared_rows: int
    """Number of steps at which both runs logged a checksum of the rows."""
    alone: tuple[int, int]
    """Number of steps that only the first run logged, and number of steps that only the second run logged."""


def run_difference(one: Points, other: Points, names: tuple[str, str]) -> RunDifference:
    """Compare the logged points of two runs. Raises ConfigError if the runs have no loss at a common step."""
    terms = []
    for curve in CURVES:
        first, second = (points.get(f"train/{curve.term}_loss", {}) for points in (one, other))
        if steps := sorted(first.keys() & second.keys()):
            losses = np.array([[first[step] for step in steps], [second[step] for step in steps]])
            terms.append(TermDifference(term=curve.term, label=curve.label, steps=np.array(steps), losses=losses))
    if not terms:
        raise ConfigError(f"runs {names[0]} and {names[1]} logged no loss at the same step: compare runs of one kind")
    rows = [points.get(ROWS, {}) for points in (one, other)]
    both = rows[0].keys() & rows[1].keys()
    steps = [set(points.get(f"train/{terms[0].term}_loss", {})) for points in (one, other)]
    return RunDifference(
        terms=tuple(terms),
        same_rows=sum(rows[0][step] == rows[1][step] for step in both),
        compared_rows=len(both),
        alone=(len(steps[0] - steps[1]), len(steps[1] - steps[0])),
    )


def lines(measured: RunDifference, names: tuple[str, str]) -> list[str]:
    """Return the differences as lines of text."""
    last = int(measured.terms[0].steps[-1])
    result = [
        f"{names[1]} against {names[0]}: {len(measured.terms[0].steps):,} logged steps in common, up to step {last:,}"
    ]
    for term in measured.terms:
        most = int(np.abs(term.difference).argmax())
        size = abs(float(term.difference[most]))
        what = "equal" if size == 0 else "equal up to rounding" if size <= PROMISED else "different"
        where = f", at step {term.steps[most]:,}" if size else ""
        result.append(f"{term.term.upper()} loss: {what}; largest difference {size:.1e} nats{where}")
    if measured.compared_rows:
        result.append(f"the same rows up to {measured.same_rows:,} of {measured.compared_rows:,} steps")
    for name, alone in zip(names, measured.alone, strict=True):
        if alone:
            result.append(f"{alone:,} steps were logged by {name} only")
    return result


def draw(measured: RunDifference, names: tuple[str, str]) -> Figure:
    """Draw two panels per loss term: both runs, and below them their difference."""
    figure = white_figure(8.5, 1.0 + 3.9 * len(measured.terms))
    panels = figure.subplots(2 * len(measured.terms), 1, sharex=True, height_ratios=[2.0, 1.0] * len(measured.terms))
    for index, term in enumerate(measured.terms):
        _losses(panels[2 * index], term, names)
        _difference(panels[2 * index + 1], term)
    panels[-1].set_xlabel("step")
    panels[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    figure.align_ylabels(panels)
    figure.suptitle(plain(f"{names[1]} over {names[0]}"), fontsize="medium", fontweight="bold")
    return figure


def _losses(axes: Axes, term: TermDifference, names: tuple[str, str]) -> None:
    """Draw the first run as a wide pale line, and the second run as a thin dashed line on top of it."""
    tidy(axes)
    axes.plot(term.steps, term.losses[0], color=BLUE, alpha=0.4, linewidth=4.0, label=plain(names[0]))
    axes.plot(term.steps, term.losses[1], "--", color=RED, linewidth=1.2, label=plain(names[1]))
    axes.set_ylabel(term.label, fontsize="small")
    # matplotlib's own list of labels leaves out names that begin with an underscore
    axes.legend(axes.get_lines(), list(map(plain, names)), frameon=False, fontsize="small")


def _difference(axes: Axes, term: TermDifference) -> None:
    """Draw the difference. The axis covers at least PROMISED in both directions, so that rounding looks small."""
    tidy(axes)
    most = float(np.abs(term.difference).max())
    limit = max(PROMISED, 1.15 * most)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.plot(term.steps, term.difference, color=GREY, linewidth=1.2)
    axes.set_ylim(-limit, limit)
    axes.set_ylabel("difference, nats", fontsize="small")
    axes.set_title(f"largest difference: {most:.1e} nats", fontsize="small", loc="right", color=GREY)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 3))
