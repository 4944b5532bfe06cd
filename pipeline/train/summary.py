"""Text of a run for users: progress lines, and at the end the summary and commands that use the model."""

import math
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config.jobs import Pretrain
from pipeline.errors import listed
from pipeline.evaluation.minimal_pairs.figures import blimp_rows
from pipeline.files import storage
from pipeline.files.locations import without_login
from pipeline.objectives.replaced import REPLACED_LOSS
from pipeline.objectives.table import OBJECTIVES
from pipeline.presets.table import PRESETS
from pipeline.reporting import Report, duration, from_here, to_paste
from pipeline.tracking.pages import TRAINING_VIEW

if TYPE_CHECKING:  # this import loads Ray, which code that reads summaries does not need
    from pipeline.corpus.prepared import Corpus


BITS, NATS = "heldout/bits_per_byte", "heldout/nats_per_word"
NO_BLANKS = "none: no held-out sentence of 8 to 30 tokens holds a whole word that is an entry of the vocabulary"


class Pace:
    """Moving average of the seconds per step, for an estimate of the time left.

    A step's weight falls to 1/e (about a third) over half of the run's steps. An average of only the last steps would
    jump when other programs use the machine.
    """

    def __init__(self, steps: int, done: int) -> None:
        self.steps, self.last = steps, done
        self.seconds = self.weight = 0.0

    def seconds_left(self, step: int, milliseconds: float) -> float:
        """Return the estimated seconds left after `step`; each step since the last call took `milliseconds`."""
        since = max(step - self.last, 1)
        kept = math.exp(-since / (self.steps / 2))
        self.seconds, self.weight, self.last = (
            kept * self.seconds + since * milliseconds / 1000,
            kept * self.weight + since,
            step,
        )
        return (self.steps - step) * self.seconds / self.weight


def progress_reporter(steps: int, done: int, report: Report) -> Callable[[int, dict[str, float]], None]:
    """Return a function that takes (step, metrics) and reports a progress line.

    `done` is the number of steps that were done before.
    """
    pace = Pace(steps, done)

    def show(step: int, metrics: dict[str, float]) -> None:
        report(progress_line(steps, step, metrics, pace.seconds_left(step, metrics["speed/step_milliseconds"])))

    return show


def progress_line(steps: int, step: int, metrics: dict[str, float], left: float) -> str:
    """Return one line: step, loss terms, tokens per second, percentage of time waiting for data, time left.

    `left` is in seconds.
    """
    terms = "  ".join(
        f"{key[6:-5]} {value:.3f}"
        for key, value in sorted(metrics.items())
        if key.startswith("train/") and key.endswith("_loss")
    )
    return (
        f"step {step:>{len(str(steps))}}/{steps}  {terms}  {metrics['speed/tokens_per_second']:,.0f} tokens/s  "
        f"data wait {metrics['speed/data_wait_percent']:.1f}%  {duration(left)} left"
    )


def figures(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the summary's figures as (name, value), in the order in which they are shown."""
    before, after = summary["heldout_before"], summary["heldout_after"]
    rows: list[tuple[str, str]] = []
    if after:
        other = _other_length(summary)
        rows += [row for handlers in OBJECTIVES.values() for row in handlers.figures(summary, other)]
        if {BITS, NATS} <= before.keys() & after.keys():
            rows.append(
                (
                    "held-out words",
                    f"{after[BITS]:.3f} bits per byte, {after[NATS]:.3f} nats per word (before training "
                    f"{before[BITS]:.3f} and {before[NATS]:.3f}; comparable across vocabularies)",
                )
            )
        rows += [row for handlers in OBJECTIVES.values() for row in handlers.further_figures(summary)]
        rows += _language_rows(summary)
    else:
        rows.append(("held-out loss", "none: the corpus is too small for a held-out part (prepare.heldout_share)"))
    rows += blimp_rows(summary)
    return rows + [
        (
            "trained",
            f"{summary['steps']:,} steps, {summary['tokens']:,} tokens, epoch {summary['epochs']}, "
            f"in {duration(summary['training_seconds'])}",
        ),
        (
            "speed",
            f"{summary['tokens_per_second']:,.0f} tokens/s on {summary['workers']} {summary['device']} "
            f"worker{'s' * (summary['workers'] > 1)}, {summary['precision']}",
        ),
        ("95% of the steps", f"within {summary['step_milliseconds_95th']:,.0f} ms"),
        ("waiting for data", f"{summary['data_wait_percent']:.1f}% of the time"),
        ("memory", f"{summary['peak_memory_gigabytes']:.2f} GB at most"),
        *_utilisation_rows(summary["model_flops_utilisation_percent"], summary["device"]),
    ]


def _language_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return one row with the held-out loss of each language.

    Return no row if there is only one language, or if the summary does not contain these losses.
    """
    losses = summary.get("heldout_by_language") or {}
    text = ", ".join(f"{language} {loss:.3f}" for language, loss in losses.items())
    return [("held-out loss by language", f"{text} nats")] if losses else []


def _other_length(summary: dict[str, Any]) -> str:
    """Return " at length N" if the evaluation before training had another sequence length N; else an empty text."""
    length = summary["heldout_before"]["heldout/maximum_length"]
    return f" at length {length:.0f}" if length != summary["maximum_length"] else ""


def _utilisation_rows(percent: float | None, device: str) -> list[tuple[str, str]]:
    """Return one row with the model FLOPs utilisation; no row for CPUs, whose peak is never known."""
    if percent is None and device == "cpu":
        return []
    unknown = "unknown: no peak is known for this GPU and precision"
    return [("model FLOPs utilisation", unknown if percent is None else f"{percent:.1f}% of the device's dense peak")]


def _location_lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (name, location) of a run's outputs."""
    return [
        ("checkpoint", summary["checkpoint"]),
        ("model", f"{summary['export']} ({summary['export_check']})"),
        ("MLflow", to_open(summary["mlflow_uri"], summary["mlflow_run_id"], summary.get("mlflow_experiment_id"))),
    ]


def to_open(uri: str, run_id: str, experiment_id: str | None = None) -> str:
    """Return text that says how to open an MLflow run.

    Summaries of older versions have no experiment id. Then the link opens MLflow's default view.
    """
    page = f"#/experiments/{experiment_id}/runs/{run_id}?{TRAINING_VIEW}" if experiment_id else f"#/runs/{run_id}"
    if uri.startswith("sqlite:"):
        program = from_here(str(Path(sys.executable).with_name("mlflow")), "mlflow")
        command = f"{shlex.quote(program)} ui --workers 1 --backend-store-uri {shlex.quote(uri)}"
        return f"run {run_id}; to open it: {command} and http://127.0.0.1:5000/{page}"
    return f"{uri.rstrip('/')}/{page}" if uri.startswith("http") else f"run {run_id} at {uri}"


def _blank_lines(summary: dict[str, Any]) -> list[str]:
    """Return lines with the sentences for fill-in-the-blank, the correct answers and the model's guesses.

    The first group of sentences has the most confident correct guesses. The second group is random.
    """
    blanks = summary["blanks"]
    if not blanks["candidates"]:
        return [f"fill in the blank (held-out sentences): {NO_BLANKS}"]
    count = f"of {blanks['candidates']} sentences the model's first guess is right in {blanks['right']}"
    plain = blanks.get("plain")  # None: a summary of an older version, which did not ask
    enough = " of plain prose" if plain == blanks["candidates"] else f", only {plain} of them plain prose"
    lines = [f"fill in the blank (held-out sentences{enough if plain is not None else ''}; {count})"]
    for title, selection in (("most confident correct guesses:", "surest"), ("at random:", "random")):
        if blanks[selection]:
            lines.append(f"  {title}")
        for blank in blanks[selection]:
            guesses = ", ".join(f"{word} {probability:.0%}" for word, probability in blank["guesses"])
            lines += [f"    {blank['text']}", f"        was: {blank['answer']}   model: {guesses}"]
    return lines


def summary_text(summary: dict[str, Any]) -> str:
    """Return the summary for a terminal."""
    width = max(len(name) for name, _ in figures(summary)) + 2
    lines = [f"run {summary['name']}", *(f"  {name:<{width}}{value}" for name, value in figures(summary))]
    if summary["heldout_after"] and summary["blanks"]:
        lines += ["", *_blank_lines(summary)]
    return "\n".join([*lines, "", *(f"  {name:<{width}}{value}" for name, value in _location_lines(summary))])


def next_commands(summary: dict[str, Any]) -> str:
    """Return the commands that use a finished run's model: search, adapting, fine-tuning, and training on other text.

    The last is left out where the model has no head for masked words: then it cannot be trained by `continue`.
    """
    model = from_here(summary["export"])
    vectors = f"{summary['export'].rsplit('/', 3)[0]}/vectors/{summary['name']}"
    folder, found = shlex.quote(model), shlex.quote(from_here(vectors))
    embed = f"python jobs/embed.py --checkpoint {folder} --input TEXTS --output {found}"
    uses = {
        "search your own texts (one per line, or a table with the columns title and text)": f"{embed} && "
        f"python jobs/search.py --vectors {found} --queries 'A QUESTION'",
        "train it for search, and compare": f"python jobs/adapt.py --corpus PATH_OR_URL --init {folder}",
        "fine-tune it on a CSV": f"python jobs/finetune.py --checkpoint {folder} --train FILE.csv "
        "--text text --label label",
    }
    if summary["blanks"] is not None and REPLACED_LOSS not in summary["heldout_after"]:
        preset = "continue-small" if summary["device"] == "cpu" else "continue"
        uses["train it on your own corpus"] = (
            f"python jobs/pretrain.py {preset} --init {folder} --corpus PATH_OR_URL sampling.pairs:full-sentences"
        )
    return to_paste("\n".join(["use this model:", *(f"  {use}:\n    {line}" for use, line in uses.items())]))


def description(config: Pretrain, corpus: "Corpus", tokens: int, folder: str) -> str:
    """Return the part of a run's description that is known before the run's first step, in Markdown.

    `tokens` is the number of vocabulary entries.
    """
    model = config.model
    like = next((name for name, preset in PRESETS.items() if preset.model == model), None)
    names, counts = listed(map(without_login, corpus.sources)), corpus.counts
    rows = [
        (
            "model",
            f"{model.layers} layers, width {model.width}, {model.heads} heads" + (f" (as {like})" if like else ""),
        ),
        ("corpus", f"{names}: {counts['characters']:,} characters in {counts['documents']:,} documents"),
        ("vocabulary", f"{tokens:,} entries"),
        (
            "steps",
            f"{config.steps:,} of {config.batch.rows_per_step:,} rows, evaluated every {config.evaluation_every:,}",
        ),
        ("export, when it is done", storage.join(folder, "export")),
    ]
    return f"Pretraining run **{config.name}**\n\n{table(rows)}\n"


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return rows of (name, value) as a Markdown table without a header."""
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)


def summary_markdown(summary: dict[str, Any]) -> str:
    """Return the summary in Markdown, which is appended to the MLflow run's description."""
    shown = summary["heldout_after"] and summary["blanks"]
    blanks = "\n\n```\n" + "\n".join(_blank_lines(summary)) + "\n```\n" if shown else "\n"
    return table(figures(summary) + _location_lines(summary)) + blanks
