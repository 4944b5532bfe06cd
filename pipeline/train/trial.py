"""One fine-tuning on one device: encoder and rows in, scores out."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from pipeline.batch import collate_labelled
from pipeline.config.finetune import Cutting, Finetune, Recipe
from pipeline.config.training import Lamb
from pipeline.objectives.tasks import TaskObjective
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Logits, Prepared, Tuned
from pipeline.tasks.selection import comparable_score
from pipeline.tasks.task import Task
from pipeline.train.course import Best, Course, Keeper, Scores
from pipeline.train.optim import build_optimizer
from pipeline.train.schedule import rate_share
from pipeline.train.seen_words import SeenWords
from pipeline.train.step import Compute, Slot, train_step

ROWS_AT_ONCE = 64  # in evaluation
POINTS = 100  # of a learning curve
GROUPED_STEPS = 50  # whose rows are sorted by length among themselves


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a trial came to."""

    scores: Scores
    """Of the weights that are kept."""
    tuned: Tuned
    """What was chosen on the first development split beside the weights."""
    collapsed: bool
    """Whether the same answer is given to the whole first development split."""
    details: dict[str, Any]
    """What more there is to say of the first development split."""
    curve: list[tuple[int, float]]
    """(step, mean training loss since the point before)."""
    epochs: list[Scores]
    """Scores after each epoch."""
    best_epoch: int
    """The one, from 1, whose weights are kept: the last, or where training may stop early the best on the first development split."""
    steps: int
    rows: int
    """Trained on, in an epoch."""
    tokens: int
    """Trained on in all."""
    seconds: float
    """Of training; evaluation is not in it."""


def run_trial(
    config: Finetune,
    task: Task,
    cutting: Cutting,
    module: TaskObjective,
    train: Prepared,
    splits: Mapping[str, Prepared],
    *,
    seed: int,
    device: torch.device,
    autocast: torch.autocast,
    after_epoch: Callable[[int, Scores], None] = lambda epoch, scores: None,
    keeper: Keeper | None = None,
) -> Result:
    """Train the module on the rows of `train` and score it on each of `splits`, of which the first selects.

    The module keeps the weights that are scored. With a `keeper` a long training keeps its state, and one that was
    stopped goes on: `after_epoch` is called for the epochs before, too.
    """
    recipe, way = config.recipe, KINDS[task.kind]
    compute = Compute(device=device, autocast=autocast, seed=seed)
    rows = drawn(train.rows, recipe.training_rows, seed)
    training = seen_words(config, module, rows)
    with training():
        optimizer = build_optimizer(config.optimizer, module)
        course = keeper.load(module, optimizer) if keeper else Course()
    for epoch, scores in enumerate(course.epochs, 1):
        after_epoch(epoch, scores)
    first, metric = next(iter(splits)), task.metrics[0]
    for epoch in range(len(course.epochs) + 1, recipe.epochs + 1):
        with training():
            train_epoch(config, module, optimizer, rows, course, epoch - 1, compute, keeper=keeper)
        found = {
            name: way.answers(task, split, logits_of(module, split.rows, device, autocast), cutting)
            for name, split in splits.items()
        }
        course.epochs.append({name: way.score(task, split, found[name], {}) for name, split in splits.items()})
        after_epoch(epoch, course.epochs[-1])
        value, best = comparable_score(metric, course.epochs[-1][first][metric]), course.best
        if recipe.patience is None or best is None or value > best.value:
            weights = copy.deepcopy(module.state_dict()) if recipe.patience else {}
            course.best = Best(value=value, epoch=epoch, weights=weights, answers=found[first])
        elif epoch - best.epoch >= recipe.patience:
            break
    assert course.best is not None
    if recipe.patience:
        module.load_state_dict(course.best.weights)
    answers = course.best.answers
    if answers is None:  # given before a restart; the same weights give the same
        answers = way.answers(task, splits[first], logits_of(module, splits[first].rows, device, autocast), cutting)
    return ended(task, splits[first], answers, course, rows.num_rows)


def ended(task: Task, first: Prepared, answers: Any, course: Course, rows: int) -> Result:
    """What a training came to that is over; `answers` are those of its best epoch to the first split."""
    assert course.best is not None
    way = KINDS[task.kind]
    tuned = way.tune(task, first, answers)
    return Result(
        scores=course.epochs[course.best.epoch - 1],
        tuned=tuned,
        collapsed=way.collapsed(task, first, answers),
        details=way.details(task, first, answers, tuned),
        curve=course.curve,
        epochs=course.epochs,
        best_epoch=course.best.epoch,
        steps=course.step,
        rows=rows,
        tokens=course.tokens,
        seconds=course.seconds,
    )


def train_epoch(
    config: Finetune,
    module: TaskObjective,
    optimizer: torch.optim.Optimizer,
    rows: pa.Table,
    course: Course,
    epoch: int,
    compute: Compute,
    *,
    keeper: Keeper | None,
) -> None:
    """Train on all rows once, or on those that are left of an epoch that was begun."""
    recipe, begun, before = config.recipe, time.perf_counter(), course.seconds
    per_epoch = math.ceil(rows.num_rows / recipe.rows_per_step)
    steps = recipe.epochs * per_epoch
    every = max(1, steps // POINTS)
    total, count = torch.full((), course.total, dtype=torch.float64, device=compute.device), course.count
    points: list[tuple[int, Tensor]] = []
    module.train()
    for slots in batches(rows, recipe, compute.seed, epoch, skip=course.step - epoch * per_epoch):
        rate = config.optimizer.learning_rate * rate_share(config.schedule, course.step, steps)
        loss, weight = train_on(
            slots, module, optimizer, compute, step=course.step, rate=rate, clip_norm=config.optimizer.clip_norm
        )
        total, count = total + loss, count + weight
        course.step, course.tokens = course.step + 1, course.tokens + sum(batch.tokens for _, batch in slots)
        if course.step % every == 0:
            points.append((course.step, total / count))
            total, count = torch.zeros_like(total), 0.0
        if keeper and keeper.due():
            course.curve += read(points)
            points = []
            course.total, course.count = float(total), float(count)
            course.seconds = before + time.perf_counter() - begun
            keeper.save(course, module, optimizer)
    if course.step % every:
        points.append((course.step, total / count))
    course.curve += read(points)
    course.total, course.count, course.seconds = 0.0, 0.0, before + time.perf_counter() - begun


def read(points: list[tuple[int, Tensor]]) -> list[tuple[int, float]]:
    """Points of a learning curve as numbers: one wait for the device."""
    values = torch.stack([mean for _, mean in points]).tolist() if points else []
    return [(step, value) for (step, _), value in zip(points, values, strict=True)]


def train_on(
    slots: Sequence[Slot],
    module: TaskObjective,
    optimizer: torch.optim.Optimizer,
    compute: Compute,
    *,
    step: int,
    rate: float,
    clip_norm: float,
) -> tuple[Tensor, Tensor | int]:
    """Train on the slots of a step; return the loss sum, float64, and the count of its mean. The host does not wait."""
    there = [(slot, batch.to(compute.device)) for slot, batch in slots]
    count = sum(module.count(batch) for _, batch in there)
    if isinstance(count, Tensor):
        count = count.clamp(min=1e-9)  # no label in the whole step
    sums, _ = train_step(module, optimizer, there, {"task": count}, compute, step=step, rate=rate, clip_norm=clip_norm)
    return sums["task"], count


def seen_words(config: Finetune, module: TaskObjective, rows: pa.Table) -> Callable[[], AbstractContextManager[None]]:
    """What to train in: of the word embeddings those that the rows have, where the others could only decay (LAMB's update looks at the whole table)."""
    embeddings = module.encoder.embeddings
    if isinstance(config.optimizer, Lamb) or not embeddings.words.weight.requires_grad:
        return nullcontext
    return partial(
        SeenWords(embeddings.words, torch.tensor(rows["ids"].combine_chunks().flatten().to_numpy())).train_in,
        embeddings,
    )


def drawn(rows: pa.Table, most: int | None, seed: int) -> pa.Table:
    """The rows, or `most` of them that the seed draws, in their order."""
    if most is None or most >= rows.num_rows:
        return rows
    return rows.take(np.sort(generator(seed, 1 << 32).permutation(rows.num_rows)[:most]))


def batches(rows: pa.Table, recipe: Recipe, seed: int, epoch: int, skip: int = 0) -> Iterator[list[Slot]]:
    """Yield the slots of each step but the first `skip`: all rows once, in an order that is a function of (seed, epoch).

    One step, the last unless lengths are grouped, has the rows that are left over.
    """
    order = generator(seed, epoch).permutation(rows.num_rows)
    starts = range(0, len(order), recipe.rows_per_step)
    if recipe.group_lengths:
        lengths, size = rows["ids"].combine_chunks().value_lengths().to_numpy(), recipe.rows_per_step * GROUPED_STEPS
        order = np.concatenate(
            [part[np.argsort(lengths[part], kind="stable")] for part in np.split(order, range(size, len(order), size))]
        )
        starts = [starts[place] for place in generator(seed, epoch).permutation(len(starts))]
    for start in starts[skip:]:
        chosen = order[start : start + recipe.rows_per_step]
        parts = np.split(
            chosen, range(recipe.rows_per_slot or len(chosen), len(chosen), recipe.rows_per_slot or len(chosen))
        )
        yield [(slot, collate_labelled(rows.take(part).combine_chunks())) for slot, part in enumerate(parts)]


def generator(seed: int, stream: int) -> np.random.Generator:
    """Counter-based, keyed by the two numbers."""
    return np.random.Generator(
        np.random.Philox(key=np.random.SeedSequence((seed, stream)).generate_state(2, np.uint64))
    )


@torch.inference_mode()
def logits_of(
    module: TaskObjective,
    rows: pa.Table,
    device: torch.device,
    autocast: torch.autocast,
    after: Callable[[int], None] = lambda rows: None,
) -> Logits:
    """What the module says of each row, in their order; `after` is called with how many more rows are done."""
    module.eval()
    # Rows of similar length go together, so that little is computed on padding.
    order = np.argsort(rows["ids"].combine_chunks().value_lengths().to_numpy(), kind="stable")
    found: list[np.ndarray] = []
    with autocast:
        for start in range(0, len(order), ROWS_AT_ONCE):
            batch = collate_labelled(rows.take(order[start : start + ROWS_AT_ONCE]).combine_chunks())
            logits = module.logits(batch.to(device)).float().cpu().numpy()
            found += np.split(logits, batch.offsets[1:-1].numpy()) if module.per_token else list(logits)
            after(batch.sequences)
    return [found[place] for place in np.argsort(order)]


def with_encoder(pretrained: nn.Module, module: TaskObjective) -> TaskObjective:
    """The module with a pretrained encoder's weights in it."""
    module.encoder.load_state_dict(pretrained.state_dict())
    return module


def label_measure(rows: pa.Table) -> tuple[float, float]:
    """Mean and standard deviation of the values of a regression; 1 where they do not differ."""
    values = rows["label"].to_numpy().astype(np.float64)
    return float(values.mean()), float(values.std()) or 1.0


def class_weights(task: Task, rows: pa.Table) -> Tensor:
    """Float32 (classes,): the mean number of labels a class, divided by each class's own; a class without any has 1."""
    found = (
        rows["label"].to_numpy()
        if task.kind == "classification"
        else rows["labels"].combine_chunks().flatten().to_numpy()
    )
    counts = np.bincount(found[found >= 0].astype(np.int64), minlength=len(task.labels)).astype(np.float64)
    return torch.from_numpy(np.where(counts > 0, counts.mean() / np.maximum(counts, 1), 1.0)).float()
