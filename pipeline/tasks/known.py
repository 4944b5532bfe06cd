"""All tasks that are known by name: GLUE's, SQuAD's, CoNLL-2003's. A new data set of a known kind is a row here."""

from dataclasses import replace
from typing import Any

from pipeline import storage
from pipeline.errors import ConfigError, DataError, listed
from pipeline.tasks import glue
from pipeline.tasks.bad_rows import BadRows
from pipeline.tasks.questions import trainable_questions
from pipeline.tasks.squad import read_questions
from pipeline.tasks.tables import existing_file, read_split
from pipeline.tasks.tagging import read_sentences
from pipeline.tasks.tags import own_task
from pipeline.tasks.task import Split, Task

ENTITY_METRICS = ("f1", "precision", "recall", "accuracy")


def squad(name: str, version: str, unanswerable: bool) -> Task:
    """Questions in the files of one version."""
    files = tuple(Split(name=split, file=f"{split}-{version}.json") for split in ("train", "dev"))
    return Task(
        name=name, kind="spans", metrics=("f1", "exact"), maximum_length=384, splits=files, unanswerable=unanswerable
    )


def conll(name: str, column: int, metrics: tuple[str, ...]) -> Task:
    """One column of tags of the English files; which tags there are, the training file says."""
    files = {"train": "eng.train", "dev": "eng.testa", "test": "eng.testb"}
    return Task(
        name=name,
        kind="tags",
        metrics=metrics,
        splits=tuple(Split(name=split, file=file, label=str(column)) for split, file in files.items()),
    )


TASKS: dict[str, Task] = glue.TASKS | {
    task.name: task
    for task in (
        squad("squad1", "v1.1", unanswerable=False),
        squad("squad2", "v2.0", unanswerable=True),
        conll("conll2003", 3, ENTITY_METRICS),
        conll("conll2003-pos", 1, ("accuracy",)),
        conll("conll2003-chunks", 2, ENTITY_METRICS),
    )
}
GLUE = tuple(glue.TASKS)


def has_train(task: Task) -> bool:
    """Whether a task can be trained."""
    return any(split.name == "train" for split in task.splits)


def split_location(folder: str, split: Split) -> str | None:
    """The split's file below the folder, plain or compressed; None where there is neither."""
    return existing_file(storage.join(folder, split.file))


def wanted_tasks(names: tuple[str, ...], folder: str) -> list[Task]:
    """The tasks named, each once; "glue" stands for all of GLUE's whose training file is in the folder. Raises ConfigError for one that does not exist, and for none."""
    trained = {name: task for name, task in TASKS.items() if has_train(task)}
    found = [name for name in GLUE if name in trained and split_location(folder, trained[name].split("train"))]
    wanted = [name for given in names for name in (found if given == "glue" else [given])]
    if unknown := [name for name in wanted if name not in trained]:
        raise ConfigError(
            f"task ({', '.join(unknown)}) is none that can be trained: choose of {', '.join(trained)}, builtin, or glue for all of GLUE's that are there"
        )
    if not wanted:
        raise ConfigError(
            f"data ({folder}) has none of GLUE's training files, such as {trained['sst2'].split('train').file}: name the folder of the official archives, unpacked"
        )
    return [trained[name] for name in dict.fromkeys(wanted)]


def read_items(task: Task, folder: str, split: str, *, skip: bool = False) -> tuple[Any, tuple[str, ...]]:
    """The items of a split as their kind of task has them, and what was left out; `skip`: bad rows too. Raises DataError for what cannot be read."""
    if task.kind not in ("spans", "tags"):
        return read_split(task, folder, split, skip=skip), ()
    where = task.split(split)
    location = split_location(folder, where)
    if location is None:
        raise DataError(
            f"{storage.join(folder, where.file)} (split {split} of {task.name}) is not there, nor compressed; {folder} has {listed(storage.children(folder))}"
        )
    if task.kind == "tags":
        bad = BadRows(skip=skip)
        return read_sentences(location, int(where.label or -1), bad), bad.words()
    questions = read_questions(location)
    return trainable_questions(questions, location) if split == "train" else (questions, ())


def with_labels(task: Task, train: Any) -> Task:
    """The task with its labels, which of tags the training sentences say; where these are no chunks, words alone are scored."""
    if task.kind != "tags":
        return task
    found = own_task(task.name, task.name, train)
    return replace(task, labels=found.labels, metrics=tuple(name for name in task.metrics if name in found.metrics))
