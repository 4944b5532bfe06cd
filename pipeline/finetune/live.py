"""Display the progress of trials: on a terminal as a live table, else as one line per epoch and per finished trial."""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live as Drawn
from rich.table import Table

from pipeline.finetune.settings import in_words
from pipeline.finetune.trials import Trial
from pipeline.reporting import Report

MOST_SHOWN = 20
"""Maximum number of trials in the live table."""
MOST_METRICS = 4
"""Maximum number of metrics shown per split."""
STATES = ("running", "failed", "stopped early", "done", "waiting")
"""States of a trial, in the order in which the live table lists trials."""


def label(trial: Trial) -> str:
    """Return a readable name of a trial: task, seed and searched settings."""
    return ", ".join(filter(None, (trial.problem, f"seed {trial.seed}", in_words(trial.chosen))))


def _scores_line(trial: Trial, result: Mapping[str, Any]) -> str:
    """Return a line with a trial's scores. In each split, the metric that selects settings is first.

    For a trial that was stopped early, the line has the last score and epoch. If the result has no scores, the line is
    empty.
    """
    if "scores" not in result:
        return (
            f"{trial.metric} {result['score']:.3f} after epoch {result['stopped_after_epoch']}"
            if "stopped_after_epoch" in result
            else ""
        )
    parts = []
    for split, scores in result["scores"].items():
        names = sorted(scores, key=lambda name: name != trial.metric)[:MOST_METRICS]
        parts.append(f"{split} " + ", ".join(f"{name} {scores[name]:.3f}" for name in names))
    return "; ".join(parts) + (", collapsed" if result["collapsed"] else "")


def _epoch_line(trial: Trial, news: Mapping[str, Any]) -> str:
    """Return the progress line after an epoch. `news` has the epoch and the value of the selecting metric."""
    return f"epoch {news['epoch']} of {trial.config.recipe.epochs}: {trial.metric} {news['value']:.3f}"


class Live:
    """Track and display the states of a set of trials."""

    def __init__(self, report: Report, console: Console | None = None) -> None:
        self.report, self.console = report, console or Console()
        self.states: dict[str, tuple[str, str]] = {}
        self.trials: Sequence[Trial] = ()
        self.drawn: Drawn | None = None
        self.begun = 0.0

    @contextmanager
    def table(self, trials: Sequence[Trial], ready: Mapping[str, Mapping[str, Any]]) -> Generator[None]:
        """Show the trials while the context is open. `ready` maps trial names to results of an earlier run."""
        self.trials, self.begun = trials, time.monotonic()
        self.states = {
            trial.name: ("done", _scores_line(trial, ready[trial.name])) if trial.name in ready else ("waiting", "")
            for trial in trials
        }
        if ready:
            self.report(f"{len(ready)} of {len(trials)} trials have their results already")
        if not self.console.is_terminal:
            yield
            return
        with Drawn(self.render(), console=self.console, refresh_per_second=2) as self.drawn:
            yield
            self.drawn.update(self.render())
        self.drawn = None

    def tell(self, trial: Trial, state: str, news: Mapping[str, Any]) -> None:
        """Record and display a trial's state.

        `news` is the trial's result, or the number of an epoch and the value of the selecting metric. If `news` has
        neither scores nor an epoch, the trial's line does not change.
        """
        if "scores" in news:
            line = _scores_line(trial, news)
        else:
            line = _epoch_line(trial, news) if "epoch" in news else self.states[trial.name][1]
        self.states[trial.name] = state, line
        if self.drawn:
            self.drawn.update(self.render())
        elif state != "running":
            ended = sum(now in ("done", "stopped early", "failed") for now, _ in self.states.values())
            seconds = f" in {news['seconds']:.0f} s" if "seconds" in news else ""
            self.report(f"{ended} of {len(self.trials)}  {label(trial)}: {state}{seconds}  {line}".rstrip())
        elif "epoch" in news:
            self.report(f"{label(trial)}: {line}")

    def render(self) -> Table:
        """Return the table: at most MOST_SHOWN trials, running ones first, and the number of the other trials."""
        counts = {state: sum(now == state for now, _ in self.states.values()) for state in STATES}
        passed = time.monotonic() - self.begun
        title = (
            ", ".join(f"{count} {state}" for state, count in counts.items() if count) + f", {passed / 60:.0f} minutes"
        )
        table = Table("trial", "setting", "state", "scores on dev", title=title, title_justify="left")
        ordered = sorted(self.trials, key=lambda trial: STATES.index(self.states[trial.name][0]))
        for trial in ordered[:MOST_SHOWN]:
            state, line = self.states[trial.name]
            table.add_row(f"{trial.problem}, seed {trial.seed}", in_words(trial.chosen), state, line)
        if len(ordered) > MOST_SHOWN:
            table.add_row("…", f"{len(ordered) - MOST_SHOWN} more", "", "")
        return table
