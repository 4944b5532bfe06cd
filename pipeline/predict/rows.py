"""Use a fine-tuned model to answer rows that are given in Python."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import torch

from pipeline.config.placement import ModelPlacement
from pipeline.errors import DataError, listed, shown
from pipeline.files import storage
from pipeline.fine_tuned.answers import required_columns
from pipeline.fine_tuned.record import TextColumns
from pipeline.fine_tuned.tuned import TunedModel
from pipeline.predict.model import answer_table, task_answerer
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.task import Task


def predict_rows(tuned: TunedModel, rows: Sequence[Any], device: torch.device) -> list[dict[str, Any]]:
    """Return one answer per row, with the fields of `answer_schema`, computed in float32.

    If a text of a row is empty, all values of its answer are None. Raises DataError for invalid rows.
    """
    task = tuned.about.task
    if isinstance(rows, str | Mapping):
        raise DataError(f"rows is a single row ({shown(rows)}): give a list of rows")
    if not len(rows):
        return []
    columns = _columns_of(task, rows)
    try:
        table = pa.table(columns)
    except (pa.ArrowException, UnicodeEncodeError) as error:
        raise DataError(f"rows cannot be used: {storage.first_line(error)}") from error
    placement = ModelPlacement(device="cuda" if device.type == "cuda" else "cpu", precision="float32")
    # rows have columns of fixed names, whatever those of the training table were
    model = replace(task_answerer(tuned, placement, device), trained=TextColumns())
    second = KINDS[task.kind].rows.inputs[1]
    answers = answer_table(model, table, None, second if second in columns else None)[0].to_pylist()
    return [_with_values(answer) for answer in answers] if task.typed_labels else answers


def _with_values(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the JSON values of its labels: 1 for "1", True for "true"."""
    found = dict(answer)
    if answer.get("label") is not None:
        found["label"] = json.loads(answer["label"])
    if answer.get("labels") is not None:
        found["labels"] = [json.loads(label) for label in answer["labels"]]
    if answer["probabilities"] is not None:
        found["probabilities"] = {json.loads(label): share for label, share in answer["probabilities"].items()}
    return found


def _columns_of(task: Task, rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Return column -> values of all rows. Raises DataError if a required column is missing."""
    named = [_by_name(task, index, row) for index, row in enumerate(rows)]
    names = list(dict.fromkeys(name for row in named for name in row))
    wanted = (*required_columns(task, names), *("second",) * task.paired)
    if missing := [name for name in wanted if name not in names]:
        raise DataError(f"rows have no {missing[0]}, which {task.name} ({task.kind}) needs; they have {listed(names)}")
    for index, row in enumerate(named):
        if lacking := [name for name in (*wanted, "second") if name in names and name not in row]:
            raise DataError(f"rows[{index}] has no {lacking[0]}, which other rows have: give all rows the same form")
    return {name: [row.get(name) for row in named] for name in names}


def _by_name(task: Task, index: int, row: Any) -> Mapping[str, Any]:
    """Return a row as {column: value}. Raises DataError for an invalid row."""
    if isinstance(row, Mapping):
        return row
    form = KINDS[task.kind].rows
    columns = form.from_python(row)
    if columns is None:
        raise DataError(f"rows[{index}] is {shown(row)}: a row is {form.from_python_words}")
    return columns
