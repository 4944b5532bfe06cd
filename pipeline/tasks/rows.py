"""Rows of each kind of task: how they are read from tables, from Python and, with labels, from files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config.finetune import Finetune
from pipeline.errors import ConfigError, DataError
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.recognise import ExampleKind
from pipeline.tasks import own
from pipeline.tasks.choice_tables import read_choices
from pipeline.tasks.files import read_file, require_labels
from pipeline.tasks.labels import with_number_labels
from pipeline.tasks.questions import misplaced_answers
from pipeline.tasks.tags import in_standard_spelling
from pipeline.tasks.task import Task

FromPython = Callable[[Any], Mapping[str, Any] | None]
"""Function from a row that is no dictionary to {input column: value}; None: the row has none of the forms."""


def _text_or_pair(row: Any) -> Mapping[str, Any] | None:
    """Read a text, or a tuple of two texts."""
    if isinstance(row, str):
        return {"text": row}
    return dict(zip(("text", "second"), row, strict=True)) if _types(row) == (str, str) else None


def _question(row: Any) -> Mapping[str, Any] | None:
    """Read a tuple of a question and its context."""
    return dict(zip(("question", "context"), row, strict=True)) if _types(row) == (str, str) else None


def _text_with_choices(row: Any) -> Mapping[str, Any] | None:
    """Read a tuple of a text and the list of its choices."""
    return dict(zip(("text", "choices"), row, strict=True)) if _types(row) == (str, list) else None


def _types(row: Any) -> tuple[type, ...]:
    """Return the types of the parts of a tuple; empty for anything else."""
    return tuple(map(type, row)) if isinstance(row, tuple) else ()


@dataclass(frozen=True, kw_only=True)
class RowForm:
    """Form of rows without labels: how they are read, and how their answers can be written."""

    inputs: tuple[str, str] = ("text", "second")
    """Input columns of the model that --text and --pair fill."""
    text: str = "text"
    """Default column of the text."""
    otherwise: str | None = None
    """Default column of the text in tables that lack `text`."""
    pair: str | None = None
    """Default column of the second text; None: rows need not have a second text."""
    words: bool = False
    """Whether the text is words, which may be a list, and files may have CoNLL's columns."""
    choices: bool = False
    """Whether rows have several texts to choose from."""
    from_python: FromPython = _text_or_pair
    from_python_words: str = "a text, a pair of texts or a dictionary"
    """Forms of a row in Python, for people."""
    answers_by_id: bool = False
    """Whether answers are texts by id, the JSON that SQuAD's official scripts read."""


OF_TEXTS = RowForm()
"""Form of rows of texts, also for models without a task."""
OF_WORDS = RowForm(text="words", otherwise="text", words=True)
OF_QUESTIONS = RowForm(
    inputs=("context", "question"),
    text="context",
    pair="question",
    from_python=_question,
    from_python_words="a dictionary or (question, context)",
    answers_by_id=True,
)
OF_CHOICES = RowForm(
    choices=True, from_python=_text_with_choices, from_python_words="a dictionary or (text, list of choices)"
)


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
class ExamplesFile:
    """A file of labelled examples, and the settings that name its columns."""

    location: str
    columns: Finetune
    bad: BadRows


def _questions(file: ExamplesFile, task: Task) -> Labelled:
    """Read questions with their answers, which SQuAD's script scores."""
    items = own.read_file_questions(file.columns, file.location, file.bad)
    lost = (*file.bad.words(), *misplaced_answers(items))
    return Labelled(name=file.location, task=replace(task, script="squad"), items=items, train=None, lost=lost)


def _sentences(file: ExamplesFile, task: Task) -> Labelled:
    """Read tagged words, and intents if the task has them."""
    _require_intents(file.columns, task)
    task = in_standard_spelling(task)
    items = own.with_known_tags(task, file.location, own.sentences(file.columns, file.location, file.bad), file.bad)
    return _read(file, task, items)


def _choices(file: ExamplesFile, task: Task) -> Labelled:
    """Read texts, each with several texts to choose from and the number of the right one."""
    return _read(file, task, read_choices(file.location, own.choice_columns(file.columns), file.bad))


def _texts(file: ExamplesFile, task: Task) -> Labelled:
    """Read texts or pairs of texts."""
    return _with_labels(file, task, _table(file, task))


def _texts_of_classes(file: ExamplesFile, task: Task) -> Labelled:
    """Read texts or pairs of texts, whose classes may be numbers in the file and have default names in the model."""
    texts = _table(file, task)
    return _with_labels(file, with_number_labels(task, set(texts["label"].to_pylist())), texts)


def _table(file: ExamplesFile, task: Task) -> Any:
    """Read a table of TEXTS. Raises DataError if the task is on pairs and no column of second texts is named."""
    if task.paired and file.columns.pair is None:
        raise DataError(f"{task.name} was learnt on pairs of texts: name the column of the second text with --pair")
    return read_file(file.location, own.columns_of(file.columns), task.kind, file.bad)


def _with_labels(file: ExamplesFile, task: Task, texts: Any) -> Labelled:
    """Return the rows whose labels the task knows; others are an error or left out."""
    return _read(file, task, require_labels(task, file.location, texts, file.bad))


def _read(file: ExamplesFile, task: Task, items: Any) -> Labelled:
    """Return what was read of a file, which has no training items."""
    return Labelled(name=file.location, task=task, items=items, train=None, lost=file.bad.words())


def _require_intents(config: Finetune, task: Task) -> None:
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
    """Form of labelled examples: how they are read, and what their tables of scores say."""

    read: Callable[[ExamplesFile, Task], Labelled]
    """Read a file. Raises PipelineError if it is unreadable, or has labels that the task lacks."""
    own_file: ExampleKind = "table"
    """Format of files, other than tables, that hold such examples."""
    some_unanswerable: Callable[[Any], bool] = _none_unanswerable
    """Return whether some of the items have no answer."""
    one_class: str = "class"
    """Heading of the column of labels in a table of scores."""


WITH_LABELS = LabelledForm(read=_texts)
WITH_CLASSES = LabelledForm(read=_texts_of_classes)
WITH_SEVERAL_LABELS = LabelledForm(read=_texts, one_class="label")
WITH_TAGS = LabelledForm(read=_sentences, own_file="conll")
WITH_ANSWERS = LabelledForm(
    read=_questions,
    own_file="squad",
    some_unanswerable=lambda items: any(question.impossible for question in items),
)
WITH_CHOSEN = LabelledForm(read=_choices)
