"""Read the labelled examples that a model is scored on, without loading the model; or score a file of answers."""

from pipeline.command_line.columns import aligned
from pipeline.command_line.options import nearest_or_all
from pipeline.config.finetune import Finetune
from pipeline.config.measurements import (
    AnswerScore,
    Examples,
    KnownSplit,
    LabelledFile,
    SimilarityScore,
    TripletScore,
)
from pipeline.errors import ConfigError, DataError, listed, shown
from pipeline.reporting import Report
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.content import json_value
from pipeline.tables.recognise import kind_of
from pipeline.tables.squad import Question, are_answers, read_questions
from pipeline.tasks import known, own
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.metrics.squad import normalised, require_answers
from pipeline.tasks.metrics.squad import score as squad_score
from pipeline.tasks.questions import normaliser
from pipeline.tasks.rows import ExamplesFile, Labelled
from pipeline.tasks.scored_pairs import ScoredPairs, pair_columns, read_pairs, read_triplets
from pipeline.tasks.task import Task


def task_of(config: KnownSplit, task: Task) -> Task:
    """Return the model's task as a task of known.TASKS is scored, without reading files.

    Raises PipelineError if the task is unknown, if the model's task has another kind or other labels, or if the split
    has no labels.
    """
    if config.task not in known.TASKS:
        names_or_near = nearest_or_all(config.task, known.TASKS, ", or give a labelled file with --input")
        raise ConfigError(f"task ({config.task}) is unknown{names_or_near}")
    asked = known.TASKS[config.task]
    where = asked.split(config.split)
    if asked.kind != task.kind:
        raise ConfigError(
            f"task ({config.task}) is of kind {asked.kind}, but the model's task is of kind {task.kind}: choose a "
            f"model of kind {asked.kind}"
        )
    if where.label is None:
        raise ConfigError(
            f"split ({config.split}) of {config.task} has no public labels: choose another split, such as dev, or "
            "answer the split with jobs/predict.py"
        )
    task = known.as_known(task, asked)
    if set(asked.labels) - set(task.labels):
        raise ConfigError(
            f"task ({config.task}) has the labels {listed(asked.labels)}, but the model's ({task.name}) are "
            f"{listed(task.labels)}: choose a model of that task"
        )
    return task


def read_examples(config: Examples, task: Task) -> Labelled:
    """Read the labelled examples. Raises PipelineError as `of_task` and `of_file` do."""
    return of_task(config, task) if isinstance(config, KnownSplit) else of_file(config, task)


def of_task(config: KnownSplit, task: Task) -> Labelled:
    """Read a split of a task of known.TASKS. Raises PipelineError as `task_of` does, or if a file cannot be read."""
    task, asked = task_of(config, task), known.TASKS[config.task]
    items, lost = known.read_items(asked, config.data, config.split, skip=config.on_bad_rows == "skip")
    has_train = known.has_train(asked) and known.split_location(config.data, asked.split("train")) is not None
    train = (
        known.read_items(asked, config.data, "train", skip=config.on_bad_rows == "skip")[0]
        if has_train and KINDS[task.kind].baseline_facts.learns != "nothing"
        else None
    )
    return Labelled(name=f"{config.task} {config.split}", task=task, items=items, train=train, lost=lost)


def of_file(config: LabelledFile, task: Task) -> Labelled:
    """Read the labelled file config.input. Raises DataError if it is unreadable, or has labels that `task` lacks."""
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
    file = ExamplesFile(location=config.input, columns=columns, bad=own.bad_rows(columns))
    if form not in ("table", KINDS[task.kind].labelled.own_file):
        raise DataError(
            f"input {config.input} is of the form {form}, but the model's task ({task.name}) is of kind {task.kind}: "
            "give a file for that kind"
        )
    return KINDS[task.kind].labelled.read(file, task)


def pairs_of(config: SimilarityScore, bad: BadRows) -> ScoredPairs:
    """Read the pairs of config.similarity. Raises DataError as `read_pairs` does."""
    return read_pairs(config.similarity, pair_columns(config.similarity, config.text, config.pair, config.label), bad)


def triplets_of(config: TripletScore, bad: BadRows) -> list[tuple[str, str, str]]:
    """Read the triplets of config.triplets. Raises DataError as `read_triplets` does."""
    return read_triplets(config.triplets, config.columns, bad)


def score_answers(config: AnswerScore, report: Report) -> dict[str, float]:
    """Report and return SQuAD's official scores of config.predictions, a JSON file of answers.

    Raises DataError if the file is invalid, or answers none of the questions, or as `require_answers` does.
    """
    predictions, asked = config.predictions, config.questions
    place = asked.task if isinstance(asked, KnownSplit) else asked.input
    answers = _read_answers(predictions)
    require_answers(questions := _asked_questions(config))
    ids = {question.id for question in questions}
    if not ids & answers.keys():
        raise DataError(
            f"{predictions} has {len(answers):,} answers, but none to a question of "
            f"{place}, such as {shown(questions[0].id)}: give the answers to these questions"
        )
    respelled = normaliser(known.TASKS[asked.task]) if isinstance(asked, KnownSplit) else normalised
    scored = squad_score(answers, questions, respelled)
    ignored = f", {len(answers.keys() - ids):,} answers to other questions ignored" if answers.keys() - ids else ""
    report(
        f"{predictions}: {len(answers):,} answers to {len(questions):,} questions, {scored['missing']:.0f} without an "
        f"answer{ignored}"
    )
    scores = [[name, f"{value:.3f}"] for name, value in scored.items() if not name.endswith(("total", "missing"))]
    for line in aligned(["metric", "score"], scores):
        report(line)
    return scored


def _asked_questions(config: AnswerScore) -> list[Question]:
    """Return the questions that were answered. Raises PipelineError for a task without questions."""
    asked = config.questions
    if isinstance(asked, LabelledFile):
        return read_questions(asked.input)
    task = known.TASKS.get(asked.task)
    if task is None or not KINDS[task.kind].rows.answers_by_id:
        raise ConfigError(
            f"predictions ({config.predictions}) are scored on questions, and task ({asked.task}) has none: choose "
            "squad1 or squad2"
        )
    if task.script == "natural-questions":
        raise ConfigError(
            f"predictions ({config.predictions}) are texts, but task ({asked.task}) is scored by positions: give the "
            "model with --checkpoint instead"
        )
    return known.read_items(task, asked.data, asked.split)[0]


def _read_answers(location: str) -> dict[str, str]:
    """Read {id: answer} from a JSON file, optionally compressed. Raises DataError for any other content."""
    whole = json_value(location, "{id: answer}, as SQuAD's official scripts read it")
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
