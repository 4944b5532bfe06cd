"""The result table of an ablation, for a terminal, as Markdown and as JSON."""

import dataclasses
import math
import statistics
from typing import Any

from pipeline.ablation.outcomes import BITS, LOSS, lower_is_better
from pipeline.ablation.results import AblationResult, Cell, ResultRow
from pipeline.command_line.columns import aligned
from pipeline.config.ablate import INTERVAL_SEEDS
from pipeline.config.ablations import ABLATIONS
from pipeline.config.flat import flatten
from pipeline.tasks.units import is_share

SIZES = ("variant", "steps", "tokens", "minutes", "seconds per step", "tokens/s")
"""Heads of the columns before the scores."""
NONE = "–"
"""Cell of a score that a variant does not have."""


def percent(score: str) -> bool:
    """Return whether a score is a share of 1, which is shown in percent."""
    return score not in (LOSS, BITS) and is_share(score)


def shown(score: str, value: float, sign: str = "") -> str:
    """Return a value of a score as text: a percentage with one decimal, any other value with three."""
    return f"{100 * value:{sign}.1f}" if percent(score) else f"{value:{sign}.3f}"


def spread_text(score: str, cell: Cell | None) -> str:
    """Return the median; if the values differ, add the lowest and the highest in parentheses."""
    if cell is None:
        return NONE
    median = shown(score, cell.median)
    return median if cell.low == cell.high else f"{median} ({shown(score, cell.low)} to {shown(score, cell.high)})"


def difference_text(score: str, cell: Cell | None) -> str:
    """Return the mean difference. Add the interval in brackets if there is one, and * if it is significant."""
    if cell is None or cell.difference is None:
        return NONE
    mean = shown(score, cell.difference.mean, "+")
    if not math.isfinite(cell.difference.low):
        return mean
    low, high = shown(score, cell.difference.low, "+"), shown(score, cell.difference.high, "+")
    return f"{mean} [{low} to {high}]{' *' if cell.significant else ''}"


def _sizes(row: ResultRow) -> list[str]:
    """Return the texts of a variant's sizes: medians over the seeds."""
    seconds = statistics.median(outcome.seconds for outcome in row.outcomes)
    per_step = statistics.median(outcome.seconds / outcome.steps for outcome in row.outcomes)
    speed = statistics.median(outcome.tokens_per_second for outcome in row.outcomes)
    tokens = statistics.median(outcome.tokens for outcome in row.outcomes)
    label = row.variant.label + (f" (not trained: {row.untrained} of {len(row.outcomes)})" if row.untrained else "")
    steps = [f"{number:,}" for number in sorted({outcome.steps for outcome in row.outcomes})]
    return [
        label,
        " to ".join(dict.fromkeys([steps[0], steps[-1]])),
        f"{tokens:,.0f}",
        f"{seconds / 60:.1f}",
        f"{per_step:.3f}",
        f"{speed:,.0f}",
    ]


def _score_head(score: str) -> str:
    """Return the head of a score's column, with its unit and direction."""
    unit = "%" if percent(score) else "nats per token" if score == LOSS else ""
    return ", ".join(filter(None, [score, unit, "↓" if lower_is_better(score) else "↑"]))


def table_lines(result: AblationResult) -> list[str]:
    """Return the lines of the table for a terminal. Each variant has a line of medians, then a line of differences."""
    heads = [*SIZES, *map(_score_head, result.scores)]
    rows = []
    for number, row in enumerate(result.rows):
        rows.append([*_sizes(row), *(spread_text(score, row.cells.get(score)) for score in result.scores)])
        if number:
            rows.append([""] * len(SIZES) + [difference_text(score, row.cells.get(score)) for score in result.scores])
    return [*aligned(heads, rows), "", *notes(result)]


def markdown(result: AblationResult) -> str:
    """Return the table as Markdown."""
    heads = [*SIZES, *map(_score_head, result.scores)]
    lines = [f"# Ablation {result.name}", "", f"| {' | '.join(heads)} |", f"|---{'|--:' * (len(heads) - 1)}|"]
    for number, row in enumerate(result.rows):
        cells = [
            "<br>".join(
                [
                    spread_text(score, row.cells.get(score)),
                    *[difference_text(score, row.cells.get(score))] * (number > 0),
                ]
            )
            for score in result.scores
        ]
        lines.append(f"| {' | '.join([*_sizes(row), *cells])} |")
    return "\n".join([*lines, "", *(f"- {note}" for note in notes(result)), ""])


def notes(result: AblationResult) -> list[str]:
    """Return the lines below the table: the budget that all variants share, the meaning of the numbers, cautions."""
    first, seeds = result.rows[0].variant.label, result.seeds
    several = "s" * (seeds > 1)
    spread = f"Median (lowest to highest) over {seeds} pretraining seed{several}."
    lines = [f"Equal for all variants: {result.budget}. {spread}"]
    if result.anecdote:
        lines.append(
            f"Below: mean difference to {first!r}. {seeds} seed{several} per variant prove nothing: "
            f"intervals need --seeds {INTERVAL_SEEDS} or more."
        )
    else:
        lines.append(
            f"Below: mean difference to {first!r}, paired by seed [95% interval, Student's t]; * significant at 5%"
            + (
                f" after Holm's correction for {result.comparisons} comparisons. The intervals are not corrected."
                if result.corrected
                else "."
            )
        )
    name = result.name.rpartition("-")[0]
    lines += [f"Examined: {ABLATIONS[name].examines}."] if name in ABLATIONS else []
    return lines + _cautions(result)


def _cautions(result: AblationResult) -> list[str]:
    """Return notes about scores that are not compared, untrained runs, and copies that no run showed twice."""
    lines = []
    uncompared = [
        score
        for score in result.scores
        if any(score in row.cells and row.cells[score].difference is None for row in result.rows[1:])
    ]
    if LOSS in uncompared:
        lines.append(
            f"{LOSS}: compared only between variants with the same pairs, masks, length and vocabulary, which change "
            "the loss."
        )
    if BITS in uncompared:
        lines.append(
            f"{BITS}: compared only at the same maximum length and case of the vocabulary; with different init, only "
            "with the same vocabulary."
        )
    if any(row.untrained for row in result.rows):
        lines.append(
            "not trained: the held-out loss is less than 0.3 nats below the loss of a unigram model. Such a run has "
            "learnt little more than word frequencies; give more tokens."
        )
    for row in result.rows:
        copies, epochs = row.variant.config.sampling.copies, max(outcome.epochs for outcome in row.outcomes)
        if copies is not None and epochs <= copies:
            lines.append(
                f"{row.variant.label}: epochs read: {epochs}. No copy was shown twice, so the rows are the same "
                "as without fixed copies."
            )
    return lines


def as_json(result: AblationResult) -> dict[str, Any]:
    """Return the table with all values, for ablation.json."""
    return {
        "name": result.name,
        "equal": result.budget,
        "first": result.rows[0].variant.label,
        "seeds": [outcome.seed for outcome in result.rows[0].outcomes],
        "comparisons": result.comparisons,
        "holm": result.corrected,
        "notes": notes(result),
        "variants": [
            {
                "label": row.variant.label,
                "settings": flatten(row.variant.config),
                "runs": [dataclasses.asdict(outcome) for outcome in row.outcomes],
                "scores": {score: _cell_json(cell) for score, cell in row.cells.items()},
            }
            for row in result.rows
        ],
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    """Return a cell as JSON. An unknown interval is null."""
    interval = None
    if cell.difference is not None and math.isfinite(cell.difference.low):
        interval = [cell.difference.low, cell.difference.high]
    return {
        "median": cell.median,
        "lowest": cell.low,
        "highest": cell.high,
        "difference": None if cell.difference is None else cell.difference.mean,
        "interval": interval,
        "p": cell.p_value,
        "significant": cell.significant,
    }
