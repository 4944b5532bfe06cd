"""Compute a teacher's logits for the training texts, on the cluster and once for all trials."""

import io
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import torch

from pipeline.config.finetune import Finetune
from pipeline.files import storage
from pipeline.fine_tuned.tuned import TunedModel
from pipeline.finetune.folds import by_task
from pipeline.finetune.problems import Problem
from pipeline.finetune.teacher import Pair, answer_texts, digest_of, distinct_texts, outputs_of, pairs_in, with_logits
from pipeline.grid import tune
from pipeline.grid.inputs import GridInputs
from pipeline.on_ray.answering import AnswerProgress
from pipeline.reporting import Report
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.units import format_score
from pipeline.train.hardware import device_of

TEXTS_AT_ONCE = 4_096
"""Texts per Ray task."""
LOGITS = pa.schema([pa.field("logits", pa.list_(pa.float32()), nullable=False)])


def with_answers(inputs: GridInputs, report: Report) -> GridInputs:
    """Return the inputs with the teacher's logits in all training rows; without a teacher, return them unchanged."""
    if inputs.teacher is None:
        return inputs
    texts = distinct_texts(inputs.problems.values())
    logits = _logits_of(inputs, inputs.teacher, texts, report)
    by_text = dict(zip(pairs_in(texts), logits, strict=True))
    cuttings = {
        name: {cutting: with_logits(problem, by_text) for cutting, problem in variants.items()}
        for name, variants in inputs.cuttings.items()
    }
    for task, names in by_task(inputs.problems).items():
        report(f"{task}: {_score_on_train(inputs.problems[names[0]], by_text)}")
    return replace(inputs, cuttings=cuttings)


def _score_on_train(problem: Problem, logits: Mapping[Pair, np.ndarray]) -> str:
    """Return a line with the teacher's score on the training rows: does the teacher agree with the labels?"""
    assert problem.teacher is not None
    answers = outputs_of(problem, np.array([logits[pair] for pair in pairs_in(problem.train.items)]))
    metric = problem.task.metrics[0]
    value = KINDS[problem.task.kind].score(problem.task, problem.train, answers, {})[metric]
    return f"teacher {problem.teacher.name} has {metric} {format_score(metric, value)} on the training rows"


def _logits_of(inputs: GridInputs, tuned: TunedModel, texts: pa.Table, report: Report) -> np.ndarray:
    """Return the teacher's logits for a table with schema TEXTS, float32 (texts, outputs).

    The logits are read from the output folder, or computed and then stored in that folder.
    """
    teacher = next(iter(inputs.problems.values())).teacher
    assert teacher is not None
    name = f"{teacher.fingerprint}-{digest_of(texts)}.parquet"
    location = storage.join(inputs.config.output, "finetune", "teachers", name)
    if (kept := _read_logits(location, texts.num_rows)) is not None:
        report(f"teacher {teacher.name}: its answers to {texts.num_rows:,} texts are in {location}")
        return kept
    report(f"teacher {teacher.name}: answers {texts.num_rows:,} texts once, for all trials")
    logits = _answer_all(inputs.config, tuned, texts, report)
    lists = pa.array(list(logits), LOGITS.field("logits").type)
    sink = io.BytesIO()
    pq.write_table(pa.table([lists], schema=LOGITS), sink)
    storage.write_bytes(location, sink.getvalue())
    return logits


def _read_logits(location: str, rows: int) -> np.ndarray | None:
    """Return the logits in a file; None if the file is missing, damaged, or does not have `rows` rows."""
    try:
        lists = pq.read_table(io.BytesIO(storage.read_bytes(location)), schema=LOGITS)["logits"].combine_chunks()
    except (FileNotFoundError, pa.ArrowException):
        return None
    return lists.flatten().to_numpy().reshape(rows, -1) if len(lists) == rows else None


def _answer_all(config: Finetune, tuned: TunedModel, texts: pa.Table, report: Report) -> np.ndarray:
    """Return the model's logits for a table with schema TEXTS, computed by Ray tasks.

    Each task has the CPUs and GPUs of one worker of a trial. Raises PipelineError if a task fails.
    """
    asked, most, model = tune.resources(config), tune.at_once(config), ray.put(tuned)
    task = ray.remote(num_cpus=asked["CPU"], num_gpus=asked.get("GPU", 0.0))(_answer)
    progress, answers = AnswerProgress(report, texts.num_rows, name="teacher"), {}
    waiting, running = list(range(0, texts.num_rows, TEXTS_AT_ONCE)), {}
    while waiting or running:
        while waiting and len(running) < most:
            start = waiting.pop(0)
            running[task.remote(config, model, texts.slice(start, TEXTS_AT_ONCE))] = start
        (done, *_), _ = ray.wait(list(running))
        start = running.pop(done)
        answers[start] = _result_of(done)
        progress.add(len(answers[start]))
    return np.concatenate([answers[start] for start in sorted(answers)])


def _result_of(done: ray.ObjectRef) -> np.ndarray:
    """Return the result of a finished Ray task. Raises PipelineError if the task failed."""
    try:
        return ray.get(done)
    except ray.exceptions.RayError as error:
        raise tune.cause([error], "the teacher could not answer: {}") from error


def _answer(config: Finetune, tuned: TunedModel, texts: pa.Table) -> np.ndarray:
    """Return the model's logits for a table with schema TEXTS, computed with the resources of a trial's worker."""
    torch.set_num_threads(config.placement.threads or max(1, round(config.trials.cpus)))
    return answer_texts(tuned, texts, config.placement, device_of(config.placement, config.trials.gpus))
