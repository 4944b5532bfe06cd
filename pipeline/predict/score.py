"""Score a fine-tuned model on labelled examples, next to a model-free baseline; or score a file of answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pipeline import storage
from pipeline.columns import aligned
from pipeline.config.finetune import Finetune
from pipeline.config.options import nearest_or_all
from pipeline.config.predict import Score
from pipeline.errors import ConfigError, DataError, listed, shown
from pipeline.finetune.problems import noun
from pipeline.finetune.table import format_score as shown_figure
from pipeline.finetune.trials import answer_precision
from pipeline.reporting import Report
from pipeline.tasks import known, own, tags
from pipeline.tasks.choice_tables import read_choices
from pipeline.tasks.content import content_of
from pipeline.tasks.files import read_file, require_labels
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.questions import misplaced_answers, normaliser
from pipeline.tasks.recognise import kind_of
from pipeline.tasks.squad import Question, are_answers, read_questions
from pipeline.tasks.squad_metrics import normalised
from pipeline.tasks.squad_metrics import score as squad_score
from pipeline.tasks.task import Task
from pipeline.train.answers import answers_of
from pipeline.train.hardware import autocast_of, required_device
from pipeline.train.published_tuned import DIGEST, load_tuned_or_published, with_number_labels
from pipeline.train.trial import compute_logits
from pipeline.train.tuned import TunedModel

DEFAULT_SPLIT = "dev"
"""Default split of a known task."""


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Examples with labels. `items` are as in Prepared; messages show `name`."""

    name: str
    task: Task
    """The model's task, with the labels named as in the examples."""
    items: Any
    train: Any
    """Training items, to fit the baseline; None for a file, for questions, and without a training split."""
    lost: tuple[str, ...] = ()
    """Descriptions of the examples that were left out, with counts."""


def score_model(config: Score, report: Report) -> dict[str, float]:
    """Report a model's scores on labelled examples next to a baseline's; return {metric: score of the model}.

    Scores are shares of 1, except for mean_absolute_error.
    """
    assert config.checkpoint is not None
    tuned = load_tuned_or_published(config.checkpoint)
    labelled = _of_task(config, tuned.about.task) if config.task else of_file(config, tuned.about.task)
    task = labelled.task if DIGEST not in tuned.about.lineage else _as_asked(labelled)
    tuned, handlers = replace(tuned, about=replace(tuned.about, task=task)), KINDS[task.kind]
    prepared = handlers.prepare(task, labelled.items, tuned.vocabulary, tuned.about.cutting)
    device = required_device(config.placement)
    precision = answer_precision(config.placement, tuned.about.lineage.get("precision"), device)
    logits = compute_logits(tuned.module.to(device), prepared.rows, device, autocast_of(precision, device))
    answers = answers_of(tuned.module, task, prepared, logits, tuned.about.cutting)
    scores = handlers.score(task, prepared, answers, tuned.about.tuned)
    baseline, words = _baseline_of(tuned, labelled, prepared)
    notes = (*labelled.lost, *prepared.notes, f"computed in {precision}")
    report(", ".join([f"{labelled.name}: {len(labelled.items):,} {noun(task)}", *notes]))
    for line in table(scores, baseline, words):
        report(line)
    if tuned.about.tuned:
        report("scores use thresholds that were tuned on the model's development set: scores on that set are too high")
    for line in detail_lines(task, handlers.details(task, prepared, answers, tuned.about.tuned)):
        report(line)
    if handlers.collapsed(task, prepared, answers):
        report("the model gives the same answer to everything")
    return scores


def _of_task(config: Score, task: Task) -> Labelled:
    """Read a split of a task of known.TASKS.

    Raises PipelineError if the model's task has another kind or other labels, or if the split has no labels.
    """
    assert config.task is not None and config.data is not None
    if config.task not in known.TASKS:
        names_or_near = nearest_or_all(config.task, known.TASKS, ", or give a labelled file with --input")
        raise ConfigError(f"task ({config.task}) is unknown{names_or_near}")
    asked = known.TASKS[config.task]
    split = config.split or DEFAULT_SPLIT
    where = asked.split(split)
    if asked.kind != task.kind:
        raise ConfigError(
            f"task ({config.task}) is of kind {asked.kind}, but the model's task is of kind {task.kind}: choose a "
            f"model of kind {asked.kind}"
        )
    if where.label is None and task.kind != "spans":
        raise ConfigError(
            f"split ({split}) of {config.task} has no public labels: choose another split, such as dev, or "
            "answer the split with jobs/predict.py"
        )
    task = replace(with_number_labels(task, set(asked.labels)), script=asked.script)
    if set(asked.labels) - set(task.labels):
        raise ConfigError(
            f"task ({config.task}) has the labels {listed(asked.labels)}, but the model's ({task.name}) are "
            f"{listed(task.labels)}: choose a model of that task"
        )
    items, lost = known.read_items(asked, config.data, split, skip=config.on_bad_rows == "skip")
    has_train = known.has_train(asked) and known.split_location(config.data, asked.split("train")) is not None
    train = (
        known.read_items(asked, config.data, "train", skip=config.on_bad_rows == "skip")[0]
        if has_train and task.kind != "spans"
        else None
    )
    return Labelled(name=f"{config.task} {split}", task=task, items=items, train=train, lost=lost)


def of_file(config: Score, task: Task) -> Labelled:
    """Read the labelled file config.input. Raises DataError if it is unreadable, or has labels that `task` lacks."""
    assert config.input is not None
    form = kind_of(config.input)
    columns = Finetune(
        checkpoint="",
        train=config.input,
        text=config.text,
        pair=config.pair,
        label=config.label,
        choices=config.choices,
        words=config.words,
        intent=config.intent,
        kind=task.kind,  # ty: ignore[invalid-argument-type]  (no model is saved with a kind that the setting lacks)
        on_bad_rows=config.on_bad_rows,
    )
    bad = own.bad_rows(columns)
    if form == "squad" and task.kind != "spans" or form == "conll" and task.kind != "tags":
        raise DataError(
            f"input {config.input} is of the form {form}, but the model's task ({task.name}) is of kind {task.kind}: "
            "give a file for that kind"
        )
    if task.kind == "spans":
        items = own.read_file_questions(columns, config.input, bad)
        lost = (*bad.words(), *misplaced_answers(items))
        return Labelled(name=config.input, task=replace(task, script="squad"), items=items, train=None, lost=lost)
    if task.kind == "tags":
        _require_intents(config, task)
        task = tags.in_standard_spelling(task)
        items = own.with_known_tags(task, config.input, own.sentences(columns, config.input, bad), bad)
        return Labelled(name=config.input, task=task, items=items, train=None, lost=bad.words())
    if task.kind == "choices":
        items = read_choices(config.input, own.choice_columns(columns), bad)
        return Labelled(name=config.input, task=task, items=items, train=None, lost=bad.words())
    if task.paired and config.pair is None:
        raise DataError(f"{task.name} was learnt on pairs of texts: name the column of the second text with --pair")
    texts = read_file(config.input, own.columns_of(columns), task.kind, bad)
    task = with_number_labels(task, set(texts["label"].to_pylist())) if task.kind == "classification" else task
    items = require_labels(task, config.input, texts, bad)
    return Labelled(name=config.input, task=task, items=items, train=None, lost=bad.words())


def _require_intents(config: Score, task: Task) -> None:
    """Raise ConfigError if intents are asked for and the model has none, or if they are not named."""
    if bool(task.intents) == (config.intent is not None):
        return
    if task.intents:
        raise ConfigError(
            f"intent is not given, but {task.name} was learnt with intents: name the column of the intent with --intent"
        )
    raise ConfigError(
        f"intent ({config.intent}) is for models that learnt intents, and {task.name} was learnt without: leave it out"
    )


def _as_asked(labelled: Labelled) -> Task:
    """Return the task of a model published by others, with `unanswerable` set if a question has no answer.

    The files of such a model do not say whether questions may be unanswerable.
    """
    questions = labelled.items if labelled.task.kind == "spans" else []
    return replace(labelled.task, unanswerable=any(question.impossible for question in questions))


def _baseline_of(tuned: TunedModel, labelled: Labelled, prepared: Prepared) -> tuple[dict[str, float], str]:
    """Return the baseline's scores and its description; both empty for tags without training items.

    Without training items, the baseline is fitted on the examples themselves: it is their best constant answer. For
    questions, the baseline is always "no answer". For similarity and ranking, shared words are counted.
    """
    task = tuned.about.task
    answer = {
        "regression": "the mean value",
        "similarity": "shared words",
        "multilabel": "the labels of most rows",
        "tags": "each word's commonest tag",
        "spans": "no answer",
        "ranking": "words of the query",
        "choices": "the commonest number",
    }.get(task.kind, "the commonest label")
    if task.kind in ("spans", "similarity", "ranking"):
        return KINDS[task.kind].baseline(task, prepared, prepared), answer
    if labelled.train is None:
        return (
            ({}, "")
            if task.kind == "tags"
            else (KINDS[task.kind].baseline(task, prepared, prepared), f"{answer} of these rows")
        )
    train = labelled.train if task.kind in ("tags", "choices") else _without_texts(labelled.train)
    if task.kind in ("tags", "choices"):  # not encoded: the baseline only counts labels, and may not know all tags
        learnt = Prepared(items=train, rows=prepared.rows)
    else:
        learnt = KINDS[task.kind].prepare(task, train, tuned.vocabulary, tuned.about.cutting)
    return KINDS[task.kind].baseline(task, learnt, prepared), f"{answer} in training"


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
    heads = ["label" if task.kind == "multilabel" else "class", "precision", "recall", "f1", "rows"]
    by_label = [(label, details["per_class"][label]) for label in task.labels]
    each = [
        [label, *(f"{100 * shares[name]:.1f}" for name in ("precision", "recall", "f1")), f"{shares['count']:.0f}"]
        for label, shares in by_label
    ]
    if "confusion" not in details:
        return ["", *aligned(heads, each)]
    counts = [[label, *map(str, row)] for label, row in zip(task.labels, details["confusion"])]
    return ["", *aligned(heads, each), "", *aligned(["true \\ answered", *task.labels], counts)]


def score_answers(config: Score, report: Report) -> dict[str, float]:
    """Report and return SQuAD's official scores of config.predictions, a JSON file of answers.

    Raises DataError if the file is invalid, or answers none of the questions.
    """
    assert config.predictions is not None
    predictions = config.predictions
    answers = _read_answers(predictions)
    questions = _asked_questions(config)
    ids = {question.id for question in questions}
    if not ids & answers.keys():
        raise DataError(
            f"{predictions} has {len(answers):,} answers, but none to a question of "
            f"{config.input or config.task}, such as {shown(questions[0].id)}: give the answers to these questions"
        )
    scored = squad_score(answers, questions, normaliser(known.TASKS[config.task]) if config.task else normalised)
    ignored = f", {len(answers.keys() - ids):,} answers to other questions ignored" if answers.keys() - ids else ""
    report(
        f"{predictions}: {len(answers):,} answers to {len(questions):,} questions, {scored['missing']:.0f} without an "
        f"answer{ignored}"
    )
    scores = [[name, f"{value:.3f}"] for name, value in scored.items() if not name.endswith(("total", "missing"))]
    for line in aligned(["metric", "score"], scores):
        report(line)
    return scored


def _asked_questions(config: Score) -> list[Question]:
    """Return the questions of config.input or config.task. Raises PipelineError for a task without questions."""
    if config.task is None:
        assert config.input is not None
        return read_questions(config.input)
    assert config.data is not None
    task = known.TASKS.get(config.task)
    if task is None or task.kind != "spans":
        raise ConfigError(
            f"predictions ({config.predictions}) are scored on questions, and task ({config.task}) has none: choose "
            "squad1 or squad2"
        )
    if task.script == "natural-questions":
        raise ConfigError(
            f"predictions ({config.predictions}) are texts, but task ({config.task}) is scored by positions: give the "
            "model with --checkpoint instead"
        )
    return known.read_items(task, config.data, config.split or DEFAULT_SPLIT)[0]


def _read_answers(location: str) -> dict[str, str]:
    """Read {id: answer} from a JSON file, optionally compressed. Raises DataError for any other content."""
    try:
        whole = json.loads(content_of(location))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{location} is not valid JSON ({storage.first_line(error)}): give {{id: answer}}, as SQuAD's official "
            "scripts read it"
        ) from error
    if isinstance(whole, dict) and isinstance(whole.get("data"), list):
        raise DataError(
            f"predictions {location} is a file of questions: are predictions and input swapped? Give {{id: answer}} as "
            "predictions, and the questions as input"
        )
    if not are_answers(whole):
        raise DataError(
            f"{location} is not a JSON object of ids and texts: give {{id: answer}}, as SQuAD's official scripts read "
            "it"
        )
    return whole
