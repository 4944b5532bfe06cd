"""Score a fine-tuned model on labelled examples, next to a model-free baseline."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pipeline.command_line.columns import aligned
from pipeline.config.predict import Score
from pipeline.fine_tuned.decoding import answers_of
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.published_tuned import DIGEST
from pipeline.fine_tuned.tuned import TunedModel
from pipeline.objectives.logits import compute_logits
from pipeline.predict.score import of_file, of_task
from pipeline.reporting import Report
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.rows import Labelled
from pipeline.tasks.task import Task, noun
from pipeline.tasks.units import format_score as shown_figure
from pipeline.train.hardware import answer_precision, autocast_of, required_device


def score_model(config: Score, report: Report) -> dict[str, float]:
    """Report a model's scores on labelled examples next to a baseline's; return {metric: score of the model}.

    Scores are shares of 1, except for mean_absolute_error.
    """
    assert config.checkpoint is not None
    tuned = open_tuned(config.checkpoint)
    labelled = of_task(config, tuned.about.task) if config.task else of_file(config, tuned.about.task)
    task = labelled.task if DIGEST not in tuned.about.lineage else _as_asked(labelled)
    tuned, handlers = replace(tuned, about=replace(tuned.about, task=task)), KINDS[task.kind]
    prepared = handlers.prepare(task, labelled.items, tuned.vocabulary, tuned.about.cutting)
    device = required_device(config.placement)
    precision = answer_precision(config.placement, tuned.about.lineage.get("precision"), device)
    logits = compute_logits(tuned.module.to(device), prepared.rows, device, autocast_of(precision, device))
    answers = answers_of(tuned.module, task, prepared, logits, tuned.about.cutting)
    scores = handlers.score(task, prepared, answers, tuned.about.thresholds)
    baseline, words = _baseline_of(tuned, labelled, prepared)
    notes = (*labelled.lost, *prepared.notes, f"computed in {precision}")
    report(", ".join([f"{labelled.name}: {len(labelled.items):,} {noun(task)}", *notes]))
    for line in table(scores, baseline, words):
        report(line)
    if tuned.about.thresholds:
        report("scores use thresholds that were tuned on the model's development set: scores on that set are too high")
    for line in detail_lines(task, handlers.details(task, prepared, answers, tuned.about.thresholds)):
        report(line)
    if handlers.collapsed(task, prepared, answers):
        report("the model gives the same answer to everything")
    return scores


def _as_asked(labelled: Labelled) -> Task:
    """Return the task of a model published by others, with `unanswerable` set if a question has no answer.

    The files of such a model do not say whether questions may be unanswerable.
    """
    unanswerable = KINDS[labelled.task.kind].labelled.some_unanswerable(labelled.items)
    return replace(labelled.task, unanswerable=unanswerable)


def _baseline_of(tuned: TunedModel, labelled: Labelled, prepared: Prepared) -> tuple[dict[str, float], str]:
    """Return the baseline's scores and its description; both empty if it lacks training items that it needs.

    Without training items, the baseline is fitted on the examples themselves: it is their best constant answer. Some
    baselines learn nothing: for questions, "no answer"; for similarity and ranking, shared words are counted.
    """
    task = tuned.about.task
    handlers = KINDS[task.kind]
    learns, answer = handlers.baseline_facts.learns, handlers.baseline_facts.words
    if learns == "nothing":
        return handlers.baseline(task, prepared, prepared), answer
    if labelled.train is None and learns == "words":
        return {}, ""
    if labelled.train is None:
        return handlers.baseline(task, prepared, prepared), f"{answer} of these rows"
    if learns == "rows":
        train = handlers.prepare(task, _without_texts(labelled.train), tuned.vocabulary, tuned.about.cutting)
    else:  # not encoded: the baseline only counts labels, and may not know all tags
        train = Prepared(items=labelled.train, rows=prepared.rows)
    return handlers.baseline(task, train, prepared), f"{answer} in training"


def _without_texts(texts: pa.Table) -> pa.Table:
    """Return a table with schema TEXTS and dummy texts, fast to encode; the baseline needs only the labels."""
    rows = texts.num_rows
    columns = {"first": pa.array(["-"] * rows, pa.string()), "second": pa.nulls(rows, pa.string())}
    return pa.table([columns.get(field.name, texts[field.name]) for field in texts.schema], schema=texts.schema)


def table(scores: Mapping[str, float], baseline: Mapping[str, float], words: str) -> list[str]:
    """Return the lines of a table: metrics, scores, and the baseline's scores if any; `words` describe the baseline."""
    head = ["metric", "score"] + ([f"baseline: {words}"] if baseline else [])
    rows = [
        [name, shown_figure(name, value, 2)] + ([shown_figure(name, baseline.get(name), 2)] if baseline else [])
        for name, value in scores.items()
    ]
    return aligned(head, rows)


def detail_lines(task: Task, details: Mapping[str, Any]) -> list[str]:
    """Return lines with the scores per class, and the confusion matrix if there is one; empty without details."""
    if not details:
        return []
    heads = [KINDS[task.kind].labelled.one_class, "precision", "recall", "f1", "rows"]
    by_label = [(label, details["per_class"][label]) for label in task.labels]
    each = [
        [label, *(f"{100 * shares[name]:.1f}" for name in ("precision", "recall", "f1")), f"{shares['count']:.0f}"]
        for label, shares in by_label
    ]
    if "confusion" not in details:
        return ["", *aligned(heads, each)]
    counts = [[label, *map(str, row)] for label, row in zip(task.labels, details["confusion"])]
    return ["", *aligned(heads, each), "", *aligned(["true \\ answered", *task.labels], counts)]
