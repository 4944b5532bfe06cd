"""Build problems (tasks with encoded splits) from official files, the user's files or the built-in task."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.corpus.builtin import distributions, package_docstrings
from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.finetune.contents import contradictions_in_words, lengths_in_words, shared_in_words
from pipeline.finetune.folds import fold_numbers
from pipeline.finetune.kinds import TRAINING
from pipeline.reporting import Report
from pipeline.tasks import known
from pipeline.tasks.builtin import builtin_task
from pipeline.tasks.download import fetch_glue
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.labels import numbers_in_words
from pipeline.tasks.metrics.lengths import with_lengths
from pipeline.tasks.own import Lost, read_own
from pipeline.tasks.prepared import Prepared, resolved_cutting
from pipeline.tasks.schema import TEXTS
from pipeline.tasks.selection import selected_by, skewed
from pipeline.tasks.tables import is_held_out
from pipeline.tasks.task import Task, noun, require_trainable
from pipeline.train.initial import Initial


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """A fine-tuned model whose logits are learned in the trials of a problem."""

    location: str
    name: str
    """Name of the trial that trained the teacher, or the last part of `location` if the trial is unknown."""
    fingerprint: str
    """Digest of the teacher's files."""
    order: tuple[int, ...]
    """For each output of the problem's models, the index of the teacher's output for the same label."""
    unlabelled: str | None = None
    """Digest of the texts without labels; None if there are no such texts."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A task and its encoded splits."""

    task: Task
    cutting: Truncation
    """Truncation and splitting of the texts, with length and stride filled in."""
    train: Prepared
    splits: dict[str, Prepared]
    """Labelled splits to score. The first is the development split; its scores select settings and models."""
    digest: str
    """Digest of the rows and items of all splits, so that a changed file with the same name is another problem."""
    fold_of: str | None = None
    """Name of the task, if this problem is a fold of it; None without cross-validation."""
    teacher: Teacher | None = None
    """Teacher, or None. The column batch.TEACHER of the rows of `train` and `unlabelled` has the teacher's logits."""
    unlabelled: Prepared | None = None
    """Texts without labels, or None. They are used only in the teacher's loss term, and their labels are NaN."""

    def rows_per_epoch(self, most: int | None = None) -> int:
        """Return the number of training rows: at most `most` labelled rows, plus all unlabelled rows."""
        labelled = self.train.rows.num_rows
        return min(most or labelled, labelled) + (self.unlabelled.rows.num_rows if self.unlabelled else 0)


def read_problems(config: Finetune, initial: Initial, report: Report) -> list[Problem]:
    """Read all requested tasks, and report how many rows were read, left out and truncated.

    Raises PipelineError for unknown tasks, and for files that cannot be read or used.
    """
    if config.train is not None:
        task, items, lost = read_own(config, config.train, config.dev)
        # A task is named after its file. If a known task has the same name, the prefix distinguishes them in tables.
        if task.name in {*known.TASKS, known.BUILTIN}:
            task = replace(task, name=f"own-{task.name}")
        if config.search.folds is not None:
            return _folds_of(config, config.search.folds, task, items["train"], lost, initial, report)
        return [_problem_of(config, task, *with_dev(task, items, report), lost, initial, report)]
    names, problems = known.require_known(config.task), []
    if names:
        folder = data_of(config)
        if config.data is None:
            download(config, names, folder, report)
        problems = [_read_known(config, task, folder, initial, report) for task in known.tasks_in(folder, names)]
    if known.BUILTIN in config.task:
        task, train, dev = _kept_builtin(storage.join(config.output, "finetune", known.BUILTIN), report)
        problems.append(_problem_of(config, task, train, {"dev": dev}, {}, initial, report))
    return problems


def _kept_builtin(folder: str, report: Report) -> tuple[Task, pa.Table, pa.Table]:
    """Return the built-in task, its training table and its development table.

    Task and tables are cached in `folder` until the installed packages change.
    """
    installed = json.dumps({name: package.version for name, package in distributions().items()})
    location = storage.join(folder, f"{hashlib.sha256(installed.encode()).hexdigest()[:16]}.json")
    if storage.read_object(location) is None:
        report("builtin: reading the documentation strings of the installed packages, which takes about a minute")
        task, train, dev = builtin_task(package_docstrings())
        storage.write_json(location, {"labels": task.labels, "train": train.to_pylist(), "dev": dev.to_pylist()})
    kept = storage.read_json(location)
    task = Task(
        name=known.BUILTIN, kind="classification", labels=tuple(kept["labels"]), metrics=("accuracy", "macro_f1")
    )
    return task, *(pa.Table.from_pylist(kept[split], schema=TEXTS) for split in ("train", "dev"))


def data_of(config: Finetune) -> str:
    """Return the folder of the tasks' files: config.data, or OUTPUT/glue, to which GLUE's files are downloaded."""
    return config.data or storage.join(config.output, "glue")


def download(config: Finetune, names: Sequence[str], folder: str, report: Report) -> None:
    """Download the files of the GLUE tasks in `names` that are missing in `folder`; "glue" stands for all GLUE tasks.

    Raises ConfigError for other tasks, and DataError if a file cannot be downloaded.
    """
    if others := [name for name in names if name not in (*known.GLUE, "glue")]:
        raise ConfigError(
            f"data is not given: name the folder with the files of {', '.join(others)}; only GLUE can be downloaded"
        )
    fetch_glue(folder, known.GLUE if "glue" in names else tuple(names), report)


def _read_known(config: Finetune, task: Task, folder: str, initial: Initial, report: Report) -> Problem:
    """Read a task of `known.TASKS`: training split, development split, and other labelled splits whose files exist."""
    skip = config.on_bad_rows == "skip"
    train, lost_of_train = known.read_items(task, folder, "train", skip=skip)
    lost = {"train": lost_of_train}
    labelled = [split for split in task.splits if split.name != "train" and split.label is not None]
    wanted = [split.name for index, split in enumerate(labelled) if index == 0 or known.split_location(folder, split)]
    splits = {}
    for name in wanted:
        splits[name], lost[name] = known.read_items(task, folder, name, skip=skip)
    task = known.with_labels(task, train, splits.values())
    return _problem_of(config, task, train, splits, lost, initial, report)


def _problem_of(
    config: Finetune, task: Task, train: Any, splits: dict[str, Any], lost: Lost, initial: Initial, report: Report
) -> Problem:
    """Build a problem from the items of its splits, and report a summary of each split."""
    if isinstance(train, pa.Table):
        task = replace(task, paired=train["second"].null_count < train.num_rows)
    if KINDS[task.kind].makes_vectors:
        task = with_lengths(task, [length for length in config.similarity.dimensions if length < initial.model.width])
    task = selected_by(task, config.recipe.metric)
    problem = cut(task, config.cutting, {"train": train, **splits}, initial)
    for name, split in {"train": problem.train, **problem.splits}.items():
        report(
            ", ".join(
                [
                    f"{_split_title(task, name)}: {len(split.items):,} {noun(task)}",
                    *(_task_summary(task) if name == "train" else ()),
                    *lost.get(name, ()),
                    *split.notes,
                ]
            )
        )
    report(f"{_split_title(task, 'train')}: {_summary(task, problem.train)}")
    if config.train is not None and config.kind == "auto" and (line := numbers_in_words(task, problem.train.rows)):
        report(f"{_split_title(task, 'train')}: {line}")
    if isinstance(train, pa.Table) and (line := skewed(task, train["label"].to_pylist())):
        report(line)
    if line := contradictions_in_words(task, problem.train.items):
        report(f"{_split_title(task, 'train')}: {line}")
    for name, split in problem.splits.items():
        if line := shared_in_words(task, problem.train.items, split.items):
            report(f"{_split_title(task, name)}: {line}")
    return problem


def _folds_of(
    config: Finetune, folds: int, task: Task, items: Any, lost: Lost, initial: Initial, report: Report
) -> list[Problem]:
    """Return one problem per fold: the fold is the development split, and the other folds are the training split.

    Reports a summary of the whole file. Raises DataError if there are fewer different texts than folds, or if a
    training split has only one class.
    """
    whole, numbers, problems = (
        _problem_of(config, task, items, {}, lost, initial, report),
        fold_numbers(task, items, folds),
        [],
    )
    sizes = np.bincount(numbers, minlength=folds)
    size = f"{max(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    report(
        f"{task.name}: {folds} folds of {size} {noun(task)}"
        + ", with equal shares of each class" * KINDS[task.kind].stratified
    )
    for fold in range(folds):
        parts = {"train": _select_items(items, numbers != fold), "dev": _select_items(items, numbers == fold)}
        if KINDS[task.kind].stratified:
            require_trainable(parts["train"], f"{config.train} without fold {fold + 1} of {folds}")
        named = replace(whole.task, name=f"{task.name}-fold{fold + 1}of{folds}")
        problems.append(replace(cut(named, config.cutting, parts, initial), fold_of=task.name))
    return problems


def cut(task: Task, cutting: Truncation, items: dict[str, Any], initial: Initial) -> Problem:
    """Build a problem: encode the items of its splits as token ids. One of the splits must be `train`.

    Raises ConfigError if cutting.maximum_length exceeds the model's positions, and DataError if the splits cannot be
    trained on and scored.
    """
    cutting = resolved_cutting(cutting, task, initial.model.maximum_positions)
    prepare = KINDS[task.kind].prepare
    prepared = {split: prepare(task, rows, initial.vocabulary, cutting) for split, rows in items.items()}
    train = prepared.pop("train")
    TRAINING[task.kind].require_trainable(task, train, prepared)
    return Problem(task=task, cutting=cutting, train=train, splits=prepared, digest=digest([train, *prepared.values()]))


def in_cuttings(
    problem: Problem, cuttings: Iterable[Truncation], initial: Initial, report: Report
) -> dict[Truncation, Problem]:
    """Return cutting (truncation settings) -> problem, for every cutting that a search tries.

    The first cutting must be the cutting of `problem`; for it, `problem` is returned unchanged. For every other
    cutting, the problem is encoded again, and a line reports what the cutting truncates. Raises ConfigError as `cut`
    does.
    """
    first, *others = dict.fromkeys(cuttings)
    items, problems = (
        {"train": problem.train.items} | {name: split.items for name, split in problem.splits.items()},
        {first: problem},
    )
    for cutting in others:
        problems[cutting] = replace(cut(problem.task, cutting, items, initial), fold_of=problem.fold_of)
        changed = ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in vars(cutting).items()
            if value != getattr(first, name)
        )
        for name, split in {"train": problems[cutting].train, **problems[cutting].splits}.items():
            if split.notes:
                report(f"{_split_title(problem.task, name)}, {changed}: {', '.join(split.notes)}")
    return problems


def _split_title(task: Task, split: str) -> str:
    """Return the name of a task's split for messages, such as "sst2 train"; for a task that is named like a split, as
    that of the file train.csv, "task train, split train".
    """
    return f"task {task.name}, split {split}" if task.name in ("train", "dev", "test") else f"{task.name} {split}"


def _summary(task: Task, prepared: Prepared) -> str:
    """Return a line about a split: its labels and the lengths of its rows."""
    labels = TRAINING[task.kind].labels_in_words(task, prepared)
    return "; ".join(filter(None, [labels, lengths_in_words(prepared.rows)]))


def _task_summary(task: Task) -> list[str]:
    """Return the task's kind and number of labels."""
    kind = f"{task.kind} of {len(task.labels):,} labels" if task.labels else task.kind
    return [kind, *([f"{len(task.intents):,} intents"] if task.intents else [])]


def digest(splits: Sequence[Prepared]) -> str:
    """Return a digest of the token ids of all rows and of all items with their labels or answers."""
    sha256 = hashlib.sha256()
    for split in splits:
        ids = split.rows["ids"].combine_chunks()
        sha256.update(np.ascontiguousarray(ids.value_lengths()).data)
        sha256.update(np.ascontiguousarray(ids.flatten()).data)
        items = split.items.to_pylist() if isinstance(split.items, pa.Table) else split.items
        for item in items:
            sha256.update(repr(item).encode("utf-8", "surrogatepass"))
    return sha256.hexdigest()[:16]


def with_dev(task: Task, items: dict[str, Any], report: Report) -> tuple[Any, dict[str, Any]]:
    """Return the training items, and the development items as {"dev": items}.

    Without a development file, about a tenth of the training items become development items, chosen by a hash of their
    text. A chosen item stays in training if one of its labels occurs only in chosen items. Raises DataError if no item
    is left for training or for development.
    """
    if "dev" in items:
        return items["train"], {"dev": items["dev"]}
    train = items["train"]
    aside, labels = np.array([is_held_out(text) for text in texts(train)]), TRAINING[task.kind].label_sets(train)
    learnt = set().union(*(own for own, held_out in zip(labels, aside) if not held_out))
    with_known_labels = aside & np.array([own <= learnt for own in labels])
    if aside.any() and not with_known_labels.any():
        raise DataError(
            f"train has {len(train):,} rows with {len(set().union(*labels)):,} different labels. No row can be set "
            "aside as dev, because each chosen row has a label that the other rows lack: name the right column with "
            "--label, or a development file with --dev"
        )
    aside = with_known_labels
    if aside.all() or not aside.any():
        raise DataError(f"train has {len(train)} rows, too few to set some aside: name a development file with --dev")
    report(f"no --dev: {aside.sum():,} of {len(train):,} rows, chosen by a hash of their text, are set aside as dev")
    return _select_items(train, ~aside), {"dev": _select_items(train, aside)}


def texts(items: Any) -> list[str]:
    """Return each item's text for `is_held_out`.

    The text of a question is its context, so that no context is in both training and development items.
    """
    if isinstance(items, pa.Table):
        return items["first"].to_pylist()
    return [getattr(item, "context", None) or " ".join(getattr(item, "words", ())) for item in items]


def _select_items(items: Any, mask: np.ndarray) -> Any:
    """Return the items at which the mask is true."""
    return (
        items.filter(pa.array(mask))
        if isinstance(items, pa.Table)
        else [item for item, wanted in zip(items, mask) if wanted]
    )
