"""Read a file of labelled examples for the task of a model, by kind of task."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config.finetune import Finetune
from pipeline.config.predict import Score
from pipeline.errors import ConfigError, DataError
from pipeline.fine_tuned.record import with_number_labels
from pipeline.tables.bad_rows import BadRows
from pipeline.tasks import own, tags
from pipeline.tasks.choice_tables import read_choices
from pipeline.tasks.files import read_file, require_labels
from pipeline.tasks.questions import misplaced_answers
from pipeline.tasks.recognise import ExampleKind
from pipeline.tasks.task import Kind, Task


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Examples with labels. `items` are as in Prepared; messages show `name`."""

    name: str
    task: Task
    """The model's task, with the labels named as in the examples."""
    items: Any
    train: Any
    """Training items, to fit the baseline; None for a file, without a training split, and if no baseline needs them."""
    lost: tuple[str, ...] = ()
    """Descriptions of the examples that were left out, with counts."""


@dataclass(frozen=True, kw_only=True)
class LabelledFile:
    """A file of labelled examples, and the settings that name its columns."""

    location: str
    asked: Score
    columns: Finetune
    bad: BadRows


def _questions(file: LabelledFile, task: Task) -> Labelled:
    """Read questions with their answers, which SQuAD's script scores."""
    items = own.read_file_questions(file.columns, file.location, file.bad)
    lost = (*file.bad.words(), *misplaced_answers(items))
    return Labelled(name=file.location, task=replace(task, script="squad"), items=items, train=None, lost=lost)


def _sentences(file: LabelledFile, task: Task) -> Labelled:
    """Read tagged words, and intents if the task has them."""
    _require_intents(file.asked, task)
    task = tags.in_standard_spelling(task)
    items = own.with_known_tags(task, file.location, own.sentences(file.columns, file.location, file.bad), file.bad)
    return _read(file, task, items)


def _choices(file: LabelledFile, task: Task) -> Labelled:
    """Read texts, each with several texts to choose from and the number of the right one."""
    return _read(file, task, read_choices(file.location, own.choice_columns(file.columns), file.bad))


def _texts(file: LabelledFile, task: Task) -> Labelled:
    """Read texts or pairs of texts."""
    return _with_labels(file, task, _table(file, task))


def _texts_of_classes(file: LabelledFile, task: Task) -> Labelled:
    """Read texts or pairs of texts, whose classes may be numbers in the file and have default names in the model."""
    texts = _table(file, task)
    return _with_labels(file, with_number_labels(task, set(texts["label"].to_pylist())), texts)


def _table(file: LabelledFile, task: Task) -> Any:
    """Read a table of TEXTS. Raises DataError if the task is on pairs and no column of second texts is named."""
    if task.paired and file.asked.pair is None:
        raise DataError(f"{task.name} was learnt on pairs of texts: name the column of the second text with --pair")
    return read_file(file.location, own.columns_of(file.columns), task.kind, file.bad)


def _with_labels(file: LabelledFile, task: Task, texts: Any) -> Labelled:
    """Return the rows whose labels the task knows; others are an error or left out."""
    return _read(file, task, require_labels(task, file.location, texts, file.bad))


def _read(file: LabelledFile, task: Task, items: Any) -> Labelled:
    """Return what was read of a file, which has no training items."""
    return Labelled(name=file.location, task=task, items=items, train=None, lost=file.bad.words())


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


def _none_unanswerable(items: Any) -> bool:
    """Return False: every item has a label."""
    return False


@dataclass(frozen=True, kw_only=True)
class LabelledForm:
    """How labelled examples of one kind of task are read, and what their tables of scores say."""

    read: Callable[[LabelledFile, Task], Labelled]
    """Read a file. Raises PipelineError if it is unreadable, or has labels that the task lacks."""
    own_file: ExampleKind = "table"
    """Format of files, other than tables, that hold such examples."""
    label_column: bool = True
    """Whether labels are in a column, which a split without labels does not name."""
    some_unanswerable: Callable[[Any], bool] = _none_unanswerable
    """Return whether some of the items have no answer."""
    one_class: str = "class"
    """Heading of the column of labels in a table of scores."""


LABELLED: dict[Kind, LabelledForm] = {
    "classification": LabelledForm(read=_texts_of_classes),
    "multilabel": LabelledForm(read=_texts, one_class="label"),
    "regression": LabelledForm(read=_texts),
    "ranking": LabelledForm(read=_texts),
    "similarity": LabelledForm(read=_texts),
    "matching": LabelledForm(read=_texts),
    "relations": LabelledForm(read=_texts),
    "tags": LabelledForm(read=_sentences, own_file="conll"),
    "spans": LabelledForm(
        read=_questions,
        own_file="squad",
        label_column=False,
        some_unanswerable=lambda items: any(question.impossible for question in items),
    ),
    "choices": LabelledForm(read=_choices),
}
