"""Draw figures of a training run from its logged metrics only: losses with baselines, and throughput."""

import math
import textwrap
from collections import Counter
from collections.abc import Mapping
from itertools import cycle, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, StrMethodFormatter

from pipeline.objectives.table import CURVES
from pipeline.objectives.terms import LossCurve

LEARNING_CURVE, THROUGHPUT = "pictures/learning-curve.png", "pictures/throughput.png"
DPI = 150
BLUE, RED, GREY = "#4477aa", "#cc6677", "#555555"
MOST_POINTS = 200
"""Maximum points per line; if more values were logged, each point is the mean of several values."""
TITLE_WIDTH = 80

Points = Mapping[str, Mapping[int, float]]
"""Metric -> step -> value, as logged."""


def pictures(name: str, points: Points) -> dict[str, Figure]:
    """Return artifact path -> figure for the run `name`; empty before its first metrics are logged."""
    drawn = {LEARNING_CURVE: learning_curve(name, points), THROUGHPUT: throughput(name, points)}
    return {path: figure for path, figure in drawn.items() if figure is not None}


def learning_curve(name: str, points: Points) -> Figure | None:
    """Draw one panel per loss term: training and held-out loss, loss before training, and the frequency baseline.

    None if no training loss was logged.
    """
    curves = [curve for curve in CURVES if points.get(f"train/{curve.term}_loss")]
    if not curves:
        return None
    figure, panels = _stacked(name, [1.5] + [1.0] * (len(curves) - 1))
    for axes, curve in zip(panels, curves, strict=True):
        term = curve.term
        _training_line(axes, points[f"train/{term}_loss"])
        _heldout_lines(axes, points.get(f"heldout/{term}_loss", {}), points.get("heldout/maximum_length", {}))
        _baseline_lines(axes, curve, points)
        axes.set_ylabel(curve.label)
        _legend(axes, last=curve is curves[-1])
    _tokens_axis(panels[0], points.get("stream/tokens", {}))
    return figure


def throughput(name: str, points: Points) -> Figure | None:
    """Draw tokens per second and the percentage of time spent waiting for data; None if one of them was not logged."""
    speed, wait = points.get("speed/tokens_per_second"), points.get("speed/data_wait_percent")
    if not speed or not wait:
        return None
    figure, (upper, lower) = _stacked(name, [1.0, 1.0])
    _training_line(upper, speed)
    _training_line(lower, wait)
    upper.set_ylabel("tokens per second")
    upper.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    lower.set_ylabel("time waiting for data, percent")
    upper.set_ylim(bottom=0)
    lower.set_ylim(0, max(10.0, 1.1 * max(wait.values())))
    _legend(lower, last=True)
    _tokens_axis(upper, points.get("stream/tokens", {}))
    return figure


def _stacked(name: str, heights: list[float]) -> tuple[Figure, list[Axes]]:
    """Return a figure with the run's name as its title, and its panels: one above the other, with one step axis."""
    figure = Figure(figsize=(8.5, 1.2 + 2.7 * sum(heights)), layout="constrained", facecolor="white")
    panels = list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])
    figure.suptitle(textwrap.fill(name, TITLE_WIDTH), fontsize="medium", fontweight="bold")
    figure.align_ylabels(panels)
    for axes in panels:
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    panels[-1].set_xlabel("step")
    panels[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return figure, panels


def _training_line(axes: Axes, logged: Mapping[int, float]) -> None:
    """Draw the logged means of intervals, each at the last step of its interval."""
    steps, values, size = interval_means(logged)
    # Use the most common interval length, because the last interval of a phase may be shorter. If only one point was
    # logged, the length is unknown.
    intervals = Counter(after - before for before, after in pairwise(sorted(logged))).most_common(1)
    number = size * intervals[0][0] if intervals else None
    label = (
        "training" if number is None else f"training, mean of {number:,} steps" if number > 1 else "training, each step"
    )
    axes.plot(steps, values, color=BLUE, linewidth=1.4, marker="." if len(steps) == 1 else "", label=label)


def interval_means(logged: Mapping[int, float]) -> tuple[np.ndarray, np.ndarray, int]:
    """Group consecutive points; return the last step and the mean of each group, and the number of points per group.

    Both arrays are float64 (groups,), with at most MOST_POINTS groups. The last group may be smaller.
    """
    steps, values = np.array(sorted(logged.items()), dtype=np.float64).T
    size = -(-len(steps) // MOST_POINTS)
    starts = np.arange(0, len(steps), size)
    ends = np.append(starts[1:], len(steps))
    return steps[ends - 1], np.add.reduceat(values, starts) / (ends - starts), size


def _heldout_lines(axes: Axes, losses: Mapping[int, float], lengths: Mapping[int, float]) -> None:
    """Draw held-out losses, one line per sequence length, because losses at two lengths cannot be compared."""
    logged_lengths = sorted({lengths.get(step) for step in losses}, key=lambda length: length or 0)
    for length, style in zip(logged_lengths, cycle(("-", "--", ":", "-."))):
        steps = [step for step in sorted(losses) if lengths.get(step) == length]
        label = "held-out" if len(logged_lengths) == 1 or length is None else f"held-out, length {length:.0f}"
        marker = "o" if len(steps) <= MOST_POINTS else ""
        axes.plot(
            steps,
            [losses[step] for step in steps],
            style,
            color=RED,
            linewidth=1.4,
            marker=marker,
            markersize=3.5,
            label=label,
        )


def _baseline_lines(axes: Axes, curve: LossCurve, points: Points) -> None:
    """Draw two horizontal lines, with their values: held-out loss before training, and newest frequency baseline."""
    untrained = points.get(f"heldout/{curve.term}_loss", {}).get(0)
    if untrained is not None:
        axes.axhline(untrained, color=GREY, linestyle=":", linewidth=1.2, label=f"before training: {untrained:.3f}")
    guess = frequency_guess(curve, points)
    if guess is not None:
        axes.axhline(guess, color=GREY, linestyle="--", linewidth=1.2, label=f"{curve.guess_label}: {guess:.3f}")


def frequency_guess(curve: LossCurve, points: Points) -> float | None:
    """Return the loss in nats of guessing by frequency, from the newest logged baseline; None if none was logged.

    For masked tokens, the logged baseline is already this loss (unigram). For a task with two answers, the baseline is
    the share of one answer, and the loss is the entropy of the two shares.
    """
    logged = points.get(curve.guess, {}) if curve.guess else {}
    if not logged:
        return None
    newest = logged[max(logged)]
    if not curve.guess_is_share:
        return newest
    return -sum(share * math.log(share) for share in (newest, 1 - newest) if share > 0)


def _tokens_axis(axes: Axes, tokens: Mapping[int, float]) -> None:
    """Add an axis at the top with the tokens read up to each step, if at least two token counts were logged."""
    if len(tokens) < 2:
        return
    logged_steps, logged_counts = np.array(sorted(tokens.items()), dtype=np.float64).T
    last, most = logged_steps[-1], logged_counts[-1]
    # The axis has margins on both sides, so extrapolate to both sides with the mean number of tokens per step.
    steps = np.array([-last, 0.0, *logged_steps, 2 * last])
    counts = np.array([-most, 0.0, *logged_counts, 2 * most])

    def tokens_at(step: Any) -> np.ndarray:
        return np.interp(step, steps, counts)

    def step_at(count: Any) -> np.ndarray:
        return np.interp(count, counts, steps)

    above = axes.secondary_xaxis("top", functions=(tokens_at, step_at))
    above.xaxis.set_major_formatter(EngFormatter())
    above.set_xlabel("tokens")


def _legend(axes: Axes, *, last: bool) -> None:
    """Put the legend below the panel, where it hides no line; for the last panel, put it below the axis labels."""
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16 if last else -0.01),
        ncols=4,
        frameon=False,
        fontsize="small",
        columnspacing=1.4,
        handlelength=1.8,
    )
