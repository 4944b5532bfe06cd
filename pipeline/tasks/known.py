"""Tasks of published data sets, by name: GLUE's, SQuAD's, CoNLL-2003's, and those of benchmarks.py.

To add a data set of a known kind, add a row to TASKS.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pipeline.command_line.options import nearest_or_all
from pipeline.errors import ConfigError, DataError, listed
from pipeline.files import storage
from pipeline.tables.bad_rows import OPTION, BadRows
from pipeline.tables.content import existing_file
from pipeline.tables.roles import LAYOUTS
from pipeline.tables.squad import Question, read_questions
from pipeline.tasks import benchmarks, glue
from pipeline.tasks.choice_tables import ChoiceColumns, read_choices
from pipeline.tasks.intents import read_utterances
from pipeline.tasks.labels import with_number_labels
from pipeline.tasks.natural import read_natural
from pipeline.tasks.questions import misplaced_answers, trainable_questions
from pipeline.tasks.tables import read_split
from pipeline.tasks.tagging import read_sentences
from pipeline.tasks.tags import in_standard_spelling, own_task
from pipeline.tasks.task import Split, Task
from pipeline.tasks.treebank import read_treebank
from pipeline.tasks.trivia import read_trivia

ENTITY_METRICS = ("f1", "precision", "recall", "accuracy")


def _squad(name: str, version: str, unanswerable: bool) -> Task:
    """Return the task of one SQuAD version."""
    files = tuple(Split(name=split, file=f"{split}-{version}.json") for split in ("train", "dev"))
    return Task(
        name=name, kind="spans", metrics=("f1", "exact"), maximum_length=384, splits=files, unanswerable=unanswerable
    )


def _conll(name: str, column: int, metrics: tuple[str, ...]) -> Task:
    """Return the task of predicting one tag column of CoNLL-2003's English files; `with_labels` adds the tags."""
    files = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}
    return Task(
        name=name,
        kind="tags",
        metrics=metrics,
        splits=tuple(Split(name=split, file=file, label=str(column)) for split, file in files.items()),
    )


def _similarity(name: str, files: dict[str, str], first: str, second: str, label: str, id: str) -> Task:
    """Return the task of comparing two texts by their vectors; `files` is {split: file}."""
    return Task(
        name=name,
        kind="similarity",
        metrics=("spearman", "pearson"),
        splits=tuple(
            Split(name=split, file=file, first=first, second=second, label=label, id=id)
            for split, file in files.items()
        ),
    )


STSB = {"train": "STS-B/train.tsv", "dev": "STS-B/dev.tsv"}
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
TASKS: dict[str, Task] = (
    glue.TASKS
    | benchmarks.TASKS
    | {
        task.name: task
        for task in (
            _squad("squad1", "v1.1", unanswerable=False),
            _squad("squad2", "v2.0", unanswerable=True),
            _similarity("stsb-similarity", STSB, *LAYOUTS["similarity"][0], "index"),
            _similarity("sick-similarity", SICK, *LAYOUTS["similarity"][1], "pair_ID"),
            _conll("conll2003", 3, ENTITY_METRICS),
            _conll("conll2003-pos", 1, ("accuracy",)),
            _conll("conll2003-chunks", 2, ENTITY_METRICS),
        )
    }
)
GLUE = tuple(glue.TASKS)
BUILTIN = "builtin"
"""Name of the task of pipeline/tasks/builtin.py."""


def require_known(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names without BUILTIN, whose task has no files. Raises ConfigError for an unknown name."""
    others = tuple(name for name in names if name != BUILTIN)
    if unknown := [name for name in others if name not in (*TASKS, "glue")]:
        names_or_near = nearest_or_all(unknown[0], (*TASKS, BUILTIN, "glue"))
        raise ConfigError(f"task ({', '.join(unknown)}) is unknown{names_or_near}")
    return others


def tasks_in(folder: str, names: tuple[str, ...]) -> list[Task]:
    """Return `wanted_tasks`. Raises ConfigError if `folder` does not exist or is empty, and as `wanted_tasks` does."""
    if not _has_files(folder):
        raise ConfigError(
            f"data ({folder}) is not a folder with files: name the folder with the files of {', '.join(names)}"
        )
    return wanted_tasks(names, folder)


def _has_files(folder: str) -> bool:
    """Return whether a folder exists and is not empty."""
    try:
        return bool(storage.children(folder))
    except OSError:  # the folder cannot be read
        return False


def takes_pairs(task: Task) -> bool:
    """Return whether a task's rows are pairs of texts. For tasks in TASKS, the name decides: `paired` is not set."""
    splits = TASKS[task.name].splits if task.name in TASKS else ()
    return task.kind not in ("spans", "choices") and (task.paired or any(split.second for split in splits))


def as_known(task: Task, known: Task) -> Task:
    """Return the task of a saved model as the official files of a known task need it.

    Its labels are spelled as theirs, and it has their script. A saved task has no splits; a ranking gets them, because
    the files number their queries, as in training.
    """
    task = replace(with_number_labels(in_standard_spelling(task), set(known.labels)), script=known.script)
    return replace(task, splits=known.splits) if task.kind == "ranking" else task


def has_train(task: Task) -> bool:
    """Return whether a task has a training split."""
    return any(split.name == "train" for split in task.splits)


def split_location(folder: str, split: Split) -> str | None:
    """Return the location of a split's file, plain or compressed; None if it does not exist."""
    return existing_file(storage.join(folder, split.file))


def wanted_tasks(names: tuple[str, ...], folder: str) -> list[Task]:
    """Return the named tasks without repetition; "glue" means all GLUE tasks with a training file in the folder.

    Raises ConfigError for a task that cannot be trained, and if no task is left.
    """
    trained = {name: task for name, task in TASKS.items() if has_train(task)}
    available = [name for name in GLUE if name in trained and split_location(folder, trained[name].split("train"))]
    wanted = [name for requested in names for name in (available if requested == "glue" else [requested])]
    if unknown := [name for name in wanted if name not in trained]:
        raise ConfigError(
            f"task ({', '.join(unknown)}) cannot be trained: choose from {', '.join(trained)}, builtin, or glue for "
            "all GLUE tasks in the folder"
        )
    if not wanted:
        raise ConfigError(
            f"data ({folder}) has none of GLUE's training files, such as {trained['sst2'].split('train').file}: name "
            "the folder of the official archives, unpacked"
        )
    return [trained[name] for name in dict.fromkeys(wanted)]


def read_items(task: Task, folder: str, split: str, *, skip: bool = False) -> tuple[Any, tuple[str, ...]]:
    """Return a split's items, and notes on what was left out.

    The items are a table with schema TEXTS or CHOICES, or a list of Sentence or Question. A table of TEXTS has no
    notes; `left_out` in tasks/tables.py returns its skipped lines. If `skip`, bad rows are skipped; otherwise they
    raise DataError. Also raises DataError if the file is missing or cannot be read.
    """
    if task.kind not in ("spans", "tags", "choices"):
        return read_split(task, folder, split, skip=skip), ()
    split_file = task.split(split)
    location = split_location(folder, split_file)
    if location is None:
        raise DataError(
            f"{storage.join(folder, split_file.file)} (split {split} of {task.name}) does not exist, nor does a "
            f"compressed copy; {folder} has {listed(storage.children(folder))}"
        )
    if split_file.sections:
        return read_treebank(location, split_file.sections), ()
    bad = BadRows(skip=skip, remedy=OPTION)
    if split_file.intents:
        return read_utterances(location, str(split_file.label), split_file.intents, bad), bad.words()
    if task.kind == "tags":
        return read_sentences(location, int(split_file.label or -1), bad), bad.words()
    if task.kind == "choices":
        return read_choices(location, _choice_columns(split_file), bad, labelled=bool(split_file.label)), bad.words()
    questions = _questions_in(task, location, bad)
    if split == "train":
        kept, lost = trainable_questions(questions, location)
        return kept, (*bad.words(), *lost)
    return questions, (*bad.words(), *misplaced_answers(questions))


def _questions_in(task: Task, location: str, bad: BadRows) -> list[Question]:
    """Return the questions of a file in the format of a task's official script."""
    if task.script == "triviaqa":
        return read_trivia(location, bad)
    return read_natural(location, bad) if task.script == "natural-questions" else read_questions(location)


def _choice_columns(split: Split) -> ChoiceColumns:
    """Return the columns of a split of kind choices."""
    return ChoiceColumns(
        first=split.first, start=split.second, choices=split.choices, label=split.label or ChoiceColumns.label
    )


def with_labels(task: Task, train: Any, others: Iterable[Any] = ()) -> Task:
    """Return the task with its labels.

    A tagging task gets the tags of the training sentences `train` as labels. If these tags do not mark entities, only
    the accuracy per word is scored. A task with intents also gets the tags and intents that only the other splits,
    `others`, have: ATIS's published splits have some, and they count as errors. Other tasks are returned unchanged.
    """
    if task.kind != "tags":
        return task
    items = [*train, *chain.from_iterable(others)] if _has_intents(task) else train
    recognised = own_task(task.name, task.name, items)
    metrics = tuple(name for name in task.metrics if name in recognised.metrics)
    return replace(task, labels=recognised.labels, intents=recognised.intents, metrics=metrics)


def _has_intents(task: Task) -> bool:
    """Return whether the sentences of a task's files have intents."""
    return any(split.intents for split in task.splits)
