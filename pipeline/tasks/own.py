"""Anyone's own files as a task: what kind it is, and its items."""

from collections.abc import Sequence
from typing import Any

from pipeline.config.finetune import Finetune
from pipeline.errors import BadRow, DataError, listed, shown
from pipeline.tasks import tags
from pipeline.tasks.bad_rows import BadRows
from pipeline.tasks.content import bare_name
from pipeline.tasks.files import Columns, own_task, read_file, require_labels
from pipeline.tasks.question_tables import CONTEXT, QUESTION, AskedColumns, has_questions, read_question_table
from pipeline.tasks.questions import trainable_questions
from pipeline.tasks.readers import rows_in
from pipeline.tasks.recognise import kind_of
from pipeline.tasks.squad import Question, read_questions
from pipeline.tasks.tagging import WITH_LISTS, Sentence, read_sentences, read_tagged
from pipeline.tasks.task import Task

LONGEST_NAME = 150
"""Bytes of a task's name: a trial's folder adds its seed and digest, and file systems take 255."""


Lost = dict[str, tuple[str, ...]]
"""Split -> what was left out of it, in words."""


def read_own(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], Lost]:
    """The task that a training file makes, the items of the files by split, and what was left out. Raises DataError for what cannot be read, and for labels that training has not."""
    form = kind_of(train)
    forms = {"squad": "spans", "conll": "tags"}
    if config.kind not in ("auto", forms.get(form, config.kind)):
        raise DataError(
            f"{train} is of the form {form}, which is of the kind {forms[form]}, and kind ({config.kind}) asks for another"
        )
    if (
        form == "squad"
        or form == "table"
        and (config.kind == "spans" or config.kind == "auto" and are_questions(config, train))
    ):
        return question_task(config, train, dev)
    if (
        form == "conll"
        or config.kind == "tags"
        or config.kind == "auto"
        and has_lists(train, (config.text, first_label(config)))
    ):
        return tagging_task(config, train, dev)
    columns, bad = columns_of(config), bad_rows(config)
    forced = None if config.kind == "auto" else config.kind
    texts = read_file(train, columns, forced, bad)
    task = own_task(train, texts, forced, columns.labels, skip=bad.skip)
    items = {"train": require_labels(task, train, texts, bad)}
    lost = {"train": bad.words()}
    if dev is not None:
        bad = bad_rows(config)
        items["dev"] = require_labels(task, dev, read_file(dev, columns, task.kind, bad), bad)
        lost["dev"] = bad.words()
    return task, items, lost


def bad_rows(config: Finetune) -> BadRows:
    """What is done with the bad rows of one more file."""
    return BadRows(skip=config.on_bad_rows == "skip")


def has_lists(location: str, columns: Sequence[str]) -> bool:
    """Whether the first row of a file has lists in all of these columns, as words and their tags are."""
    if not bare_name(location).endswith(WITH_LISTS):
        return False
    _, values = next(rows_in(location, columns, BadRows(skip=True)), (1, ()))
    return bool(values) and all(isinstance(value, list) for value in values)


def columns_of(config: Finetune) -> Columns:
    """The columns that the settings name."""
    one = None if len(config.label) > 1 else first_label(config)
    return Columns(first=config.text, second=config.pair, label=one, labels=() if one else config.label)


def first_label(config: Finetune) -> str:
    """The column of the label, or of the tags."""
    return config.label[0] if config.label else "label"


def are_questions(config: Finetune, location: str) -> bool:
    """Whether a table is of questions: by the usual names where none is set, or by a column of labels that holds answers with their places."""
    named = (config.text, config.pair, config.label) != ("text", None, ())
    return (not named or len(config.label) == 1) and has_questions(location, config.label[0] if named else None)


def read_file_questions(config: Finetune, location: str, bad: BadRows) -> list[Question]:
    """The questions of a file, in SQuAD's JSON or a table. Raises DataError for another."""
    form = kind_of(location)
    if form == "squad":
        return read_questions(location)
    if form != "table":
        raise DataError(f"{location} is of the form {form}: questions are read from SQuAD's JSON and from tables")
    context = CONTEXT if config.text == "text" else config.text
    return read_question_table(
        location,
        AskedColumns(
            context=context, question=config.pair or QUESTION, answers=config.label[0] if config.label else None
        ),
        bad,
    )


def question_task(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], Lost]:
    """A task of spans; where questions are impossible, as in SQuAD 2.0, they are answered by none."""
    bad, bad_of_dev = bad_rows(config), bad_rows(config)
    kept, unlearnable = trainable_questions(found := read_file_questions(config, train, bad), train)
    task = Task(
        name=stem(train),
        kind="spans",
        metrics=("f1", "exact"),
        maximum_length=384,
        unanswerable=any(one.impossible for one in found),
    )
    items = {"train": kept} | ({"dev": read_file_questions(config, dev, bad_of_dev)} if dev else {})
    return task, items, {"train": (*bad.words(), *unlearnable), "dev": bad_of_dev.words()}


def tagging_task(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], Lost]:
    """Words with tags, in CoNLL's columns or in a table."""
    bad, bad_of_dev = bad_rows(config), bad_rows(config)
    found = {"train": sentences(config, train, bad)}
    task = tags.own_task(stem(train), train, found["train"])
    if dev:
        found["dev"] = with_known_tags(task, dev, sentences(config, dev, bad_of_dev), bad_of_dev)
    return task, found, {"train": bad.words(), "dev": bad_of_dev.words()}


def with_known_tags(task: Task, location: str, items: Sequence[Sentence], bad: BadRows) -> list[Sentence]:
    """The sentences without those that have a tag which the task does not know. Raises DataError where that is all of them, or where none may be left out."""
    known, kept = set(task.labels), []
    for number, item in enumerate(items, 1):
        if unknown := [tag for tag in item.tags if tag not in known]:
            bad.take(
                BadRow(
                    f"{location}, sentence {number}: tag {shown(unknown[0])} is not among the {len(known)} tags of {task.name} ({listed(task.labels)}); mend the file or train with that tag",
                    "unknown-tag",
                )
            )
        else:
            kept.append(item)
    bad.require_some(location, len(kept))
    return kept


def sentences(config: Finetune, location: str, bad: BadRows) -> list[Sentence]:
    """The tagged sentences of a file."""
    if kind_of(location) != "conll":
        return read_tagged(location, config.text, first_label(config), bad)
    column = first_label(config)
    if column != "label" and not column.lstrip("-").isdigit():
        raise DataError(
            f"{location} has columns without names: give --label a number, 1 for the second column or -1 for the last, not {column}"
        )
    return read_sentences(location, -1 if column == "label" else int(column), bad)


def stem(location: str) -> str:
    """A file's name without what follows its first point, as much as has room in the names of folders."""
    return location.rsplit("/", 1)[-1].split(".")[0].encode()[:LONGEST_NAME].decode(errors="ignore")
