"""Turn a fine-tuned model's output for texts, sentences or questions into readable rows, one per item."""

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import torch

from pipeline.errors import DataError, listed
from pipeline.fine_tuned.about import TunedModel
from pipeline.fine_tuned.answer_forms import Columns
from pipeline.fine_tuned.published import PUBLISHED
from pipeline.objectives.logits import compute_logits
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.task import Task
from pipeline.text.schema import CUT


def required_columns(task: Task, given: Collection[str]) -> tuple[str, ...]:
    """Return the input columns that are required if there are the columns `given`."""
    form = PUBLISHED[task.kind].answers
    return form.instead if form.instead and set(form.instead) <= set(given) else form.columns


def items_of(tuned: TunedModel, columns: Columns) -> Any:
    """Convert columns of equal length to items of a model's task, one per row.

    Tasks on texts read `text`; tasks on pairs also read `second`. None in `second` means that there is no second text.
    Tagging reads lists of words in `words`. Without `words`, it splits `text` at white space,
    or takes the members of a list in it. Question answering reads `question` and `context`. Multiple choice reads the
    context in `text` and lists of texts in `choices`; before each choice of a row comes its text in `second`, if there
    is one. Raises DataError for a missing column.
    """
    task = tuned.about.task
    if missing := [name for name in required_columns(task, columns) if name not in columns]:
        raise DataError(
            f"column {missing[0]} is required for {task.name} ({task.kind}), but the columns are "
            f"{listed(list(columns))}"
        )
    return PUBLISHED[task.kind].answers.items(task, columns)


def answer_schema(task: Task) -> pa.Schema:
    """Return the schema of the answers to a task's items."""
    return pa.schema(PUBLISHED[task.kind].answers.fields(task))


def answer_items(tuned: TunedModel, items: Any, device: torch.device, autocast: torch.autocast) -> pa.Table:
    """Return a table with schema `answer_schema`: one row per item, in order. A table with rows has metadata CUT.

    Probabilities of labels come from a softmax, and for multilabel tasks from sigmoids; those of tags as in
    `tag_probabilities_of`. An answer to a question is the text of the context from `start` up to `end` (exclusive),
    counted in characters. Its probability is relative to the n-best answers. "No answer" is an empty text without
    offsets. Choices have numbers from 0. Moves the model to the device.
    """
    about = tuned.about
    if not len(items):
        return answer_schema(about.task).empty_table()
    prepared = KINDS[about.task.kind].prepare(about.task, items, tuned.vocabulary, about.cutting)
    logits = compute_logits(tuned.module.to(device), prepared.rows, device, autocast)
    rows = PUBLISHED[about.task.kind].answers.rows(tuned, prepared, logits)
    return pa.Table.from_pylist(rows, schema=answer_schema(about.task)).replace_schema_metadata(
        {CUT: str(prepared.cut)}
    )
