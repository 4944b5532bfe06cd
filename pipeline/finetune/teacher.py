"""Learn from a teacher: check that the teacher fits the task, and add its logits to the training rows."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pipeline.batch import TEACHER
from pipeline.config.finetune import Finetune
from pipeline.config.placement import ModelPlacement
from pipeline.errors import ConfigError, listed
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.published_tuned import DIGEST
from pipeline.fine_tuned.tuned import TunedModel
from pipeline.finetune.kinds import TRAINING
from pipeline.finetune.problems import Problem, Teacher
from pipeline.objectives.logits import compute_logits
from pipeline.saved.digest import fingerprint
from pipeline.tasks import sequences
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import ENCODED, TEXTS
from pipeline.tasks.task import Task
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.hardware import answer_precision, autocast_of

NO_LABEL = float("nan")
Pair = tuple[str, str | None]
"""The first and the second text of a row. The second text is None if the task has single texts."""


def load_teacher(location: str) -> TunedModel:
    """Load a fine-tuned model as a teacher. Raises CheckpointError if the model has no task head or is damaged."""
    return open_tuned(location, "teacher:")


def teacher_of(config: Finetune, problem: Problem, tuned: TunedModel) -> Teacher:
    """Return the teacher of a problem. Raises ConfigError if `tuned` was trained on another task."""
    assert config.teacher is not None
    lineage = tuned.about.lineage
    return Teacher(
        location=config.teacher,
        name=str(lineage.get("trial") or config.teacher.rstrip("/").rpartition("/")[2]),
        fingerprint=lineage[DIGEST][:16] if DIGEST in lineage else fingerprint(config.teacher),
        order=_order_of(config.teacher, problem, tuned.about.task),
    )


def _order_of(location: str, problem: Problem, teacher: Task) -> tuple[int, ...]:
    """Return the index of the teacher's output for each output of the problem's models.

    Raises ConfigError if the kind of task has no teacher, and as `Teaching.order` does.
    """
    task, name = problem.task, problem.fold_of or problem.task.name
    of_teacher = f"teacher ({location})"
    if (teaching := TRAINING[task.kind].teaching) is None:
        taught = listed(kind for kind, handlers in TRAINING.items() if handlers.teaching)
        raise ConfigError(f"{of_teacher} is for {taught}, but {name} is of kind {task.kind}: leave --teacher out")
    return teaching.order(of_teacher, name, task, teacher)


def with_teacher(problem: Problem, teacher: Teacher, unlabelled: pa.Table | None, vocabulary: Vocabulary) -> Problem:
    """Return the problem with the teacher and, if there are any, the encoded unlabelled texts.

    `with_logits` adds the teacher's logits later. `unlabelled` is a table with schema TEXTS, or None.
    """
    if unlabelled is not None:
        teacher = replace(teacher, unlabelled=digest_of(unlabelled))
        prepared = sequences.prepare(problem.task, unlabelled, vocabulary, problem.cutting)
        problem = replace(problem, unlabelled=replace(prepared, rows=_without_labels(problem.task, prepared.rows)))
    digest = hashlib.sha256(f"{problem.digest} {teacher.fingerprint} {teacher.unlabelled}".encode()).hexdigest()
    return replace(problem, teacher=teacher, digest=digest[:16])


def digest_of(texts: pa.Table) -> str:
    """Return a digest of the texts of all rows, in order."""
    return hashlib.sha256("\n".join(map(repr, pairs_in(texts))).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _without_labels(task: Task, rows: pa.Table) -> pa.Table:
    """Return encoded rows with all labels replaced by NaN. The kind of task decides which column has the labels."""
    field = ENCODED.field(KINDS[task.kind].label_column)
    value: Any = [NO_LABEL] * len(task.labels) if pa.types.is_list(field.type) else NO_LABEL
    column = pa.array([value] * rows.num_rows, field.type)
    return rows.set_column(rows.column_names.index(field.name), field, column)


def distinct_texts(problems: Iterable[Problem]) -> pa.Table:
    """Return the distinct texts of all training rows, labelled and unlabelled, as a table with schema TEXTS."""
    splits = [split for problem in problems for split in (problem.train, problem.unlabelled) if split is not None]
    first, second = zip(*dict.fromkeys(pair for split in splits for pair in pairs_in(split.items)), strict=True)
    return pa.table([list(map(str, range(len(first)))), first, second, [None] * len(first)], schema=TEXTS)


def pairs_in(texts: pa.Table) -> Iterable[Pair]:
    """Return the texts of each row of a table with schema TEXTS."""
    return zip(texts["first"].to_pylist(), texts["second"].to_pylist(), strict=True)


def answer_texts(tuned: TunedModel, texts: pa.Table, placement: ModelPlacement, device: torch.device) -> np.ndarray:
    """Return the model's logits for a table with schema TEXTS, float32 (texts, outputs). For regression, return values.

    The texts are encoded with the vocabulary and truncation settings of the model.
    """
    about = tuned.about
    prepared = sequences.prepare(about.task, texts, tuned.vocabulary, about.cutting)
    precision = answer_precision(placement, about.lineage.get("precision"), device)
    logits = compute_logits(tuned.module.to(device), prepared.rows, device, autocast_of(precision, device))
    return sequences.answers(about.task, prepared, logits, about.cutting).astype(np.float32)


def outputs_of(problem: Problem, logits: np.ndarray) -> np.ndarray:
    """Return a teacher's logits (texts, its outputs) as outputs of the problem's models (texts, their outputs)."""
    teaching = TRAINING[problem.task.kind].teaching
    assert problem.teacher is not None and teaching is not None
    return teaching.outputs(logits[:, list(problem.teacher.order)])


def with_logits(problem: Problem, logits: Mapping[Pair, np.ndarray]) -> Problem:
    """Return the problem with the teacher's logits in a new column TEACHER of its training and unlabelled rows.

    `logits` maps the texts of `distinct_texts` to the teacher's outputs, in the teacher's order.
    """
    assert problem.teacher is not None

    def filled(split: Prepared) -> Prepared:
        by_item = outputs_of(problem, np.array([logits[pair] for pair in pairs_in(split.items)], np.float32))
        by_row = by_item[split.rows["row"].to_numpy()]
        offsets = np.arange(0, by_row.size + 1, by_row.shape[1], dtype=np.int32)
        column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(by_row.ravel()))
        return replace(split, rows=split.rows.append_column(TEACHER, column))

    return replace(problem, train=filled(problem.train), unlabelled=problem.unlabelled and filled(problem.unlabelled))
