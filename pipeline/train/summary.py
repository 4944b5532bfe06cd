"""What a person reads of a run: a line of progress, and the summary at the end."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pipeline import storage
from pipeline.config.jobs import Pretrain
from pipeline.errors import listed
from pipeline.presets import PRESETS

if TYPE_CHECKING:  # imports Ray, which a reader of summaries does not need
    from pipeline.corpus.prepare import Corpus

TRAINING_VIEW = "workflowType=machine_learning"
"""Option of a page of MLflow that opens its view of training; it may open on the one of chat models otherwise (3.17)."""
BITS, NATS = "heldout/bits_per_byte", "heldout/nats_per_word"


ONE_ANSWER = "not measured: all held-out pairs have the same answer; hold out more documents (prepare.heldout_share, or more text)"
NO_BLANKS = "none: no held-out sentence of 8 to 30 tokens holds a whole word that is an entry of the vocabulary"


def duration(seconds: float) -> str:
    """Seconds as people say them: 45s, 3m20s, 2h05m."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


class Pace:
    """Seconds per step: the mean since the start, in which what was half the run ago counts for a third.

    That of the last steps alone jumps where other programs use the machine.
    """

    def __init__(self, steps: int, done: int) -> None:
        self.steps, self.last = steps, done
        self.seconds = self.weight = 0.0

    def seconds_left(self, step: int, milliseconds: float) -> float:
        """Seconds until the last step, after `step`, the steps since the last call having taken `milliseconds` each."""
        since = max(step - self.last, 1)
        kept = math.exp(-since / (self.steps / 2))
        self.seconds, self.weight, self.last = (
            kept * self.seconds + since * milliseconds / 1000,
            kept * self.weight + since,
            step,
        )
        return (self.steps - step) * self.seconds / self.weight


def progress_line(steps: int, step: int, metrics: dict[str, float], left: float) -> str:
    """One line: step, loss terms, real tokens per second, share of time waiting for data, time left in seconds."""
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
    """The summary's figures as (name, value) in reading order."""
    before, after, beside = summary["heldout_before"], summary["heldout_after"], summary["baselines"]
    rows = []
    if after:
        rows += [
            (
                "held-out MLM loss",
                f"{after['heldout/mlm_loss']:.3f} nats at length {summary['maximum_length']} (before training {before['heldout/mlm_loss']:.3f}{other_length(summary)}, "
                f"unigram baseline {beside['baseline/unigram_mlm_loss']:.3f})",
            ),
            (
                "held-out MLM accuracy",
                f"{after['heldout/mlm_accuracy']:.1%} (unigram baseline {beside['baseline/unigram_mlm_accuracy']:.1%})",
            ),
        ]
        if {BITS, NATS} <= before.keys() & after.keys():
            rows.append(
                (
                    "held-out words",
                    f"{after[BITS]:.3f} bits a byte, {after[NATS]:.3f} nats a word (before training {before[BITS]:.3f} and {before[NATS]:.3f}; comparable across vocabularies)",
                )
            )
        rows += [
            (
                f"held-out {term.upper()} accuracy",
                f"{after[f'heldout/{term}_accuracy']:.1%} (majority baseline {beside[f'baseline/majority_{term}_accuracy']:.1%})",
            )
            for term in ("nsp", "sop")
            if f"heldout/{term}_accuracy" in after
        ]
        rows += [
            (f"held-out {term.upper()} accuracy", ONE_ANSWER)
            for term in ("nsp", "sop")
            if pair_task_unmeasured(term, after, beside)
        ]
    else:
        rows.append(("held-out loss", "none: the corpus is too small for a held-out part (prepare.heldout_share)"))
    return rows + [
        (
            "trained",
            f"{summary['steps']:,} steps, {summary['tokens']:,} tokens, epoch {summary['epochs']}, in {duration(summary['training_seconds'])}",
        ),
        (
            "speed",
            f"{summary['tokens_per_second']:,.0f} tokens/s on {summary['workers']} {summary['device']} worker{'s' * (summary['workers'] > 1)}, {summary['precision']}",
        ),
        ("95% of the steps", f"within {summary['step_milliseconds_95th']:,.0f} ms"),
        ("waiting for data", f"{summary['data_wait_percent']:.1f}% of the time"),
        ("memory", f"{summary['peak_memory_gigabytes']:.2f} GB at most"),
        ("model FLOPs utilisation", utilisation_text(summary["model_flops_utilisation_percent"])),
    ]


def pair_task_unmeasured(term: str, after: dict[str, float], beside: dict[str, float]) -> bool:
    """Whether a pair task was asked and could not be measured."""
    return f"heldout/{term}_accuracy" not in after and f"baseline/majority_{term}_accuracy" in beside


def other_length(summary: dict[str, Any]) -> str:
    """At which length was measured before training, where it was another one."""
    length = summary["heldout_before"]["heldout/maximum_length"]
    return f" at length {length:.0f}" if length != summary["maximum_length"] else ""


def utilisation_text(percent: float | None) -> str:
    return (
        "not known: there is no peak for this device and precision"
        if percent is None
        else f"{percent:.1f}% of the device's dense peak"
    )


def location_lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Where things lie."""
    return [
        ("checkpoint", summary["checkpoint"]),
        ("model", f"{summary['export']} ({summary['export_check']})"),
        ("MLflow", to_open(summary["mlflow_uri"], summary["mlflow_run_id"], summary.get("mlflow_experiment_id"))),
    ]


def to_open(uri: str, run_id: str, experiment_id: str | None = None) -> str:
    """Where people find an MLflow run; where its experiment is not known, as of older runs, in whichever view MLflow opens."""
    page = f"#/experiments/{experiment_id}/runs/{run_id}?{TRAINING_VIEW}" if experiment_id else f"#/runs/{run_id}"
    if uri.startswith("sqlite:"):
        return f"run {run_id}; to open it: mlflow ui --workers 1 --backend-store-uri {uri} and http://127.0.0.1:5000/{page}"
    return f"{uri.rstrip('/')}/{page}" if uri.startswith("http") else f"run {run_id} at {uri}"


def blank_lines(summary: dict[str, Any]) -> list[str]:
    """The sentences with their answers and guesses: those that the model is surest of, said to be chosen so, then those at random."""
    blanks = summary["blanks"]
    if not blanks["candidates"]:
        return [f"fill in the blank (held-out sentences): {NO_BLANKS}"]
    of = f"of {blanks['candidates']} sentences the model's first guess is right in {blanks['right']}"
    lines = [f"fill in the blank (held-out sentences; {of})"]
    for title, which in (("chosen, right and surest:", "surest"), ("at random:", "random")):
        if blanks[which]:
            lines.append(f"  {title}")
        for blank in blanks[which]:
            guesses = ", ".join(f"{word} {probability:.0%}" for word, probability in blank["guesses"])
            lines += [f"    {blank['text']}", f"        was: {blank['answer']}   model: {guesses}"]
    return lines


def summary_text(summary: dict[str, Any]) -> str:
    """The summary for a terminal."""
    width = max(len(name) for name, _ in figures(summary)) + 2
    lines = [f"run {summary['name']}", *(f"  {name:<{width}}{value}" for name, value in figures(summary))]
    if summary["heldout_after"]:
        lines += ["", *blank_lines(summary)]
    return "\n".join([*lines, "", *(f"  {name:<{width}}{value}" for name, value in location_lines(summary))])


def description(config: Pretrain, corpus: "Corpus", tokens: int, folder: str) -> str:
    """What a run is, known before its first step, in Markdown; `tokens` are the entries of its vocabulary."""
    model = config.model
    like = next((name for name, preset in PRESETS.items() if preset.model == model), None)
    names, counts = listed(map(storage.without_login, corpus.sources)), corpus.counts
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
    """Rows of (name, value) in Markdown, without heads."""
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)


def summary_markdown(summary: dict[str, Any]) -> str:
    """The summary as it follows the MLflow run's description."""
    blanks = "\n\n```\n" + "\n".join(blank_lines(summary)) + "\n```\n" if summary["heldout_after"] else "\n"
    return table(figures(summary) + location_lines(summary)) + blanks
