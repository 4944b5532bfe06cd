"""Anyone's own files as a task: what kind it is, and its items."""

from collections.abc import Sequence
from typing import Any

from pipeline.config.finetune import Finetune
from pipeline.errors import DataError
from pipeline.tasks import tags
from pipeline.tasks.content import COMPRESSED
from pipeline.tasks.files import Columns, own_task, read_file, require_labels, rows_in
from pipeline.tasks.question_tables import CONTEXT, QUESTION, AskedColumns, has_questions, read_question_table
from pipeline.tasks.questions import usable
from pipeline.tasks.recognise import kind_of
from pipeline.tasks.squad import Question, read_questions
from pipeline.tasks.tagging import WITH_LISTS, read_sentences, read_tagged
from pipeline.tasks.task import Task


def read_own(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], tuple[str, ...]]:
    """The task that a training file makes, the items of the files by split, and what was left out. Raises DataError for what cannot be read, and for labels that training has not."""
    form = kind_of(train)
    forms = {"squad": "spans", "conll": "tags"}
    if config.kind not in ("auto", forms.get(form, config.kind)):
        raise DataError(f"{train} is of the form {form}, which is of the kind {forms[form]}, and kind ({config.kind}) asks for another")
    if form == "squad" or form == "table" and (config.kind == "spans" or config.kind == "auto" and are_questions(config, train)):
        return questions(config, train, dev)
    if form == "conll" or config.kind == "tags" or config.kind == "auto" and has_lists(train, (config.text, first_label(config))):
        return *tagged(config, train, dev), ()
    columns = columns_of(config)
    forced = None if config.kind == "auto" else config.kind
    texts = read_file(train, columns, forced)
    task = own_task(train, texts, forced, columns.labels)
    items = {"train": texts}
    if dev is not None:
        items["dev"] = read_file(dev, columns, task.kind)
        require_labels(task, dev, items["dev"])
    return task, items, ()


def has_lists(location: str, columns: Sequence[str]) -> bool:
    """Whether the first row of a file has lists in all of these columns, as words and their tags are."""
    if not location.lower().removesuffix(COMPRESSED).endswith(WITH_LISTS):
        return False
    _, values = next(rows_in(location, columns), (1, ()))
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


def asked(config: Finetune, location: str) -> list[Question]:
    """The questions of a file, in SQuAD's JSON or a table. Raises DataError for another."""
    form = kind_of(location)
    if form == "squad":
        return read_questions(location)
    if form != "table":
        raise DataError(f"{location} is of the form {form}: questions are read from SQuAD's JSON and from tables")
    context = CONTEXT if config.text == "text" else config.text
    return read_question_table(location, AskedColumns(context=context, question=config.pair or QUESTION, answers=config.label[0] if config.label else None))


def questions(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], tuple[str, ...]]:
    """A task of spans; where questions are impossible, as in SQuAD 2.0, they are answered by none."""
    kept, lost = usable(found := asked(config, train), train)
    task = Task(name=stem(train), kind="spans", metrics=("f1", "exact"), maximum_length=384, unanswerable=any(one.impossible for one in found))
    return task, {"train": kept} | ({"dev": asked(config, dev)} if dev else {}), lost


def tagged(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any]]:
    """Words with tags, in CoNLL's columns or in a table."""
    found = {"train": sentences(config, train)} | ({"dev": sentences(config, dev)} if dev else {})
    return tags.own_task(stem(train), train, found["train"]), found


def sentences(config: Finetune, location: str) -> list[Any]:
    """The tagged sentences of a file."""
    if kind_of(location) != "conll":
        return read_tagged(location, config.text, first_label(config))
    column = first_label(config)
    if column != "label" and not column.lstrip("-").isdigit():
        raise DataError(f"{location} has columns without names: give --label a number, 1 for the second column or -1 for the last, not {column}")
    return read_sentences(location, -1 if column == "label" else int(column))


def stem(location: str) -> str:
    """A file's name without what follows its first point."""
    return location.rsplit("/", 1)[-1].split(".")[0]
