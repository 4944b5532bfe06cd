"""The rows of a fine-tuning trial: a sample, its batches in the order of an epoch, and what the labels say."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pipeline.batch import collate_labelled
from pipeline.config.recipe import Recipe
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import QUERY
from pipeline.tasks.task import Task
from pipeline.text.randomness import numbered_generator
from pipeline.train.step import Slot

GROUPED_STEPS = 50
"""The rows of this number of steps are sorted by length together."""
SAMPLING = 1 << 32
"""Number of the random stream that draws the sample of training rows."""


def training_rows(train: Prepared, unlabelled: pa.Table | None, recipe: Recipe, seed: int) -> pa.Table:
    """Return the rows of an epoch: the sample of labelled rows that the recipe sets, then all rows of `unlabelled`."""
    labelled = rows_per_class(train.rows, recipe.rows_per_class, seed)
    if train.windows:
        labelled = sample_rows(labelled, recipe.training_rows, seed)
    else:
        group = QUERY if QUERY in labelled.schema.names else "row"
        labelled = sample_groups(labelled, group, recipe.training_rows, seed)
    return labelled if unlabelled is None else pa.concat_tables([labelled, unlabelled])


def sample_rows(rows: pa.Table, most: int | None, seed: int) -> pa.Table:
    """Return a random sample of at most `most` rows, in their original order; all rows if `most` is None."""
    if most is None or most >= rows.num_rows:
        return rows
    return rows.take(np.sort(numbered_generator(seed, SAMPLING).permutation(rows.num_rows)[:most]))


def sample_groups(rows: pa.Table, group: str, most: int | None, seed: int) -> pa.Table:
    """Return all rows of a random sample of groups, which have at most `most` rows together; all rows for None.

    A group, such as a query or the passages of a text, has one number in the column `group`. At least one group is
    taken. Rows keep their order.
    """
    if most is None or most >= rows.num_rows:
        return rows
    groups = rows[group].to_numpy()
    counts = np.bincount(groups)
    order = numbered_generator(seed, SAMPLING).permutation(np.flatnonzero(counts))
    taken = order[: max(1, int(np.searchsorted(np.cumsum(counts[order]), most, side="right")))]
    return rows.filter(pa.array(np.isin(groups, taken)))


def rows_per_class(rows: pa.Table, most: int | None, seed: int) -> pa.Table:
    """Return all rows of a random sample of at most `most` texts of each class, in their original order; all rows for
    None.
    """
    if most is None:
        return rows
    texts, firsts = np.unique(rows["row"].to_numpy(), return_index=True)
    order = numbered_generator(seed, SAMPLING).permutation(len(texts))
    labels = rows["label"].to_numpy()[firsts[order]]
    chosen = [texts[order[np.flatnonzero(labels == label)[:most]]] for label in np.unique(labels)]
    return rows.filter(pa.array(np.isin(rows["row"].to_numpy(), np.concatenate(chosen))))


def batches(rows: pa.Table, recipe: Recipe, seed: int, epoch: int, skip: int = 0) -> Iterator[list[Slot]]:
    """Yield the slots of each step of an epoch, without its first `skip` steps.

    An epoch has all rows once, in an order that depends on (seed, epoch). If rows_per_step does not divide the number
    of rows, one step is smaller: the last step, or a random step if lengths are grouped.
    """
    order = numbered_generator(seed, epoch).permutation(rows.num_rows)
    starts = range(0, len(order), recipe.rows_per_step)
    if recipe.group_lengths:
        lengths, size = rows["ids"].combine_chunks().value_lengths().to_numpy(), recipe.rows_per_step * GROUPED_STEPS
        order = np.concatenate(
            [part[np.argsort(lengths[part], kind="stable")] for part in np.split(order, range(size, len(order), size))]
        )
        starts = [starts[index] for index in numbered_generator(seed, epoch).permutation(len(starts))]
    for start in starts[skip:]:
        chosen = order[start : start + recipe.rows_per_step]
        parts = np.split(
            chosen, range(recipe.rows_per_slot or len(chosen), len(chosen), recipe.rows_per_slot or len(chosen))
        )
        yield [(slot, collate_labelled(rows.take(part).combine_chunks())) for slot, part in enumerate(parts)]


def label_mean_and_deviation(rows: pa.Table) -> tuple[float, float]:
    """Return the mean and standard deviation of regression labels; the deviation is 1 if all labels are equal."""
    values = rows["label"].to_numpy().astype(np.float64)
    return float(values.mean()), float(values.std()) or 1.0


def class_weights(task: Task, rows: pa.Table, outputs: int) -> Tensor:
    """Return the weight of each class in the loss, float32 (outputs,).

    The weight is the mean number of labels per class, divided by the number of labels of this class. A class without
    labels has weight 1. Intents are no classes of words: their outputs, the last ones, have weight 1.
    """
    column = rows[KINDS[task.kind].label_column].combine_chunks()
    labels = (column.flatten() if pa.types.is_list(column.type) else column).to_numpy()
    classes = outputs - len(task.intents)
    counted = labels[(labels >= 0) & (labels < classes)].astype(np.int64)
    counts = np.bincount(counted, minlength=classes).astype(np.float64)
    weights = np.where(counts > 0, counts.mean() / np.maximum(counts, 1), 1.0)
    return torch.from_numpy(np.concatenate((weights, np.ones(len(task.intents))))).float()
