"""One fine-tuning trial: train an encoder with a task's head on rows, and score it after every epoch."""

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow as pa
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeline.config.cutting import Truncation
from pipeline.config.finetune import Finetune
from pipeline.config.recipe import Recipe
from pipeline.config.training import Lamb
from pipeline.fine_tuned.decoding import answers_of
from pipeline.finetune.few_labels import FewLabels
from pipeline.finetune.kinds import TRAINING
from pipeline.finetune.seen_words import SeenWords
from pipeline.finetune.trial_rows import batches, training_rows
from pipeline.finetune.trial_state import Best, Scores, TrialCheckpoints, TrialState
from pipeline.objectives.logits import compute_logits
from pipeline.objectives.sequences import SequenceTask
from pipeline.objectives.tasks import TaskObjective
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.optim.schedule import rate_share
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.prepared import Prepared, Thresholds
from pipeline.tasks.selection import comparable_score
from pipeline.tasks.task import Task
from pipeline.train.step import Slot, StepContext, distributed, train_step

POINTS = 100  # approximate points of a learning curve


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """Outcome of a trial."""

    scores: Scores
    """Scores of the kept weights."""
    thresholds: Thresholds
    """Values tuned on the first development split, such as thresholds."""
    collapsed: bool
    """Whether the model gives the same answer to all rows of the first development split."""
    details: dict[str, Any]
    """Further results on the first development split."""
    curve: list[tuple[int, float]]
    """Points (step, mean training loss since the previous point)."""
    epochs: list[Scores]
    """Scores after each epoch."""
    best_epoch: int
    """Epoch of the kept weights, counted from 1.

    Without early stopping, the last epoch; with early stopping, the epoch with the best score on the first split.
    """
    steps: int
    rows: int
    """Training rows per epoch, including rows without a label."""
    tokens: int
    """Training tokens in all epochs together."""
    seconds: float
    """Training time, without evaluation."""


def run_trial(
    config: Finetune,
    task: Task,
    cutting: Truncation,
    module: TaskObjective,
    train: Prepared,
    splits: Mapping[str, Prepared],
    *,
    seed: int,
    device: torch.device,
    autocast: torch.autocast,
    after_epoch: Callable[[int, Scores], None] = lambda epoch, scores: None,
    checkpoints: TrialCheckpoints | None = None,
    world: int = 1,
    unlabelled: pa.Table | None = None,
) -> TrialResult:
    """Train the module on the rows of `train`, score it on each of `splits` after every epoch, and return the result.

    Each epoch also contains all rows of `unlabelled`, which have a teacher's logits instead of labels.

    With early stopping, the first split selects the epoch whose weights the module keeps; otherwise the module keeps
    its last weights. With `checkpoints`, the state is saved at intervals, and a killed trial continues from the
    saved state. After such a restart, `after_epoch` is called again for the epochs before the restart.
    """
    recipe, handlers = config.recipe, KINDS[task.kind]
    compute = StepContext(device=device, autocast=autocast, seed=seed, world=world)
    rows = epoch_rows(config, task, train, unlabelled, seed)
    few = few_labels(module, rows, recipe, seed)
    trained, rows = (few.encoder_task, few.pairs) if few else (module, rows)
    training = seen_words(config, trained, rows)
    with training():
        optimizer = build_optimizer(config.optimizer, trained)
        state = checkpoints.load(trained, optimizer) if checkpoints else TrialState()
        objective = distributed(trained, device, world, unused=True)
    if few and state.epochs:  # a checkpoint of `trained` has no head
        few.fit_head(device, autocast)
    for epoch, scores in enumerate(state.epochs, 1):
        after_epoch(epoch, scores)
    first, metric = next(iter(splits)), task.metrics[0]
    for epoch in range(len(state.epochs) + 1, recipe.epochs + 1):
        with training():
            train_epoch(config, objective, optimizer, rows, state, epoch - 1, compute, checkpoints=checkpoints)
        if few:
            few.fit_head(device, autocast)
        answers_by_split = {
            name: answers_of(module, task, split, compute_logits(module, split.rows, device, autocast), cutting)
            for name, split in splits.items()
        }
        state.epochs.append(
            {name: handlers.score(task, split, answers_by_split[name], {}) for name, split in splits.items()}
        )
        after_epoch(epoch, state.epochs[-1])
        value, best = comparable_score(metric, state.epochs[-1][first][metric]), state.best
        if recipe.patience is None or best is None or value > best.value:
            weights = copy.deepcopy(module.state_dict()) if recipe.patience else {}
            state.best = Best(value=value, epoch=epoch, weights=weights, answers=answers_by_split[first])
        over = recipe.patience is not None and state.best is not None and epoch - state.best.epoch >= recipe.patience
        if _agreed(over, compute):
            break
    assert state.best is not None
    if recipe.patience:
        module.load_state_dict(state.best.weights)
    answers = state.best.answers
    if answers is None:  # lost in a restart; the same weights give the same answers again
        logits = compute_logits(module, splits[first].rows, device, autocast)
        answers = answers_of(module, task, splits[first], logits, cutting)
    return _build_result(task, splits[first], answers, state, rows.num_rows)


def epoch_rows(config: Finetune, task: Task, train: Prepared, unlabelled: pa.Table | None, seed: int) -> pa.Table:
    """Return the rows of an epoch: those of `training_rows`, in the form that the kind of task needs."""
    return TRAINING[task.kind].epoch_rows(training_rows(train, unlabelled, config.recipe, seed), config, seed)


def few_labels(module: TaskObjective, rows: pa.Table, recipe: Recipe, seed: int) -> FewLabels | None:
    """Return the contrastive training of a trial; None for a recipe without it."""
    if recipe.contrastive_pairs is None:
        return None
    return FewLabels(cast(SequenceTask, module), rows, recipe.contrastive_pairs, seed)


def assist_trial(
    config: Finetune,
    task: Task,
    module: TaskObjective,
    train: Prepared,
    compute: StepContext,
    checkpoints: TrialCheckpoints | None = None,
    unlabelled: pa.Table | None = None,
) -> None:
    """Train this rank's slots of a trial until the trial ends; rank 0 runs `run_trial` with the same settings."""
    rows = epoch_rows(config, task, train, unlabelled, compute.seed)
    training = seen_words(config, module, rows)
    with training():
        optimizer = build_optimizer(config.optimizer, module)
        state = checkpoints.load(module, optimizer) if checkpoints else TrialState()
        objective = distributed(module, compute.device, compute.world, unused=True)
    for epoch in range(len(state.epochs), config.recipe.epochs):
        with training():
            train_epoch(config, objective, optimizer, rows, state, epoch, compute, checkpoints=None)
        if _agreed(False, compute):
            break


def _agreed(over: bool, compute: StepContext) -> bool:
    """Return rank 0's value of `over`: whether training ends. Every rank must call this after each epoch."""
    if compute.world == 1:
        return over
    decision = torch.tensor(int(over), device=compute.device)
    dist.broadcast(decision, 0)
    return bool(decision)


def _build_result(task: Task, first: Prepared, answers: Any, state: TrialState, rows: int) -> TrialResult:
    """Return the result of a finished trial; `answers` are the best epoch's answers to the first split."""
    assert state.best is not None
    handlers = KINDS[task.kind]
    thresholds = handlers.tune(task, first, answers)
    return TrialResult(
        scores=state.epochs[state.best.epoch - 1],
        thresholds=thresholds,
        collapsed=handlers.collapsed(task, first, answers),
        details=handlers.details(task, first, answers, thresholds),
        curve=state.curve,
        epochs=state.epochs,
        best_epoch=state.best.epoch,
        steps=state.step,
        rows=rows,
        tokens=state.tokens,
        seconds=state.seconds,
    )


def train_epoch(
    config: Finetune,
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
    rows: pa.Table,
    state: TrialState,
    epoch: int,
    compute: StepContext,
    *,
    checkpoints: TrialCheckpoints | None,
) -> None:
    """Train on all rows once, or on the remaining rows of an interrupted epoch, and update `state`.

    `epoch` counts from 0. `objective` is the module of the task, or DistributedDataParallel around it.
    """
    peak = config.optimizer.learning_rate
    assert peak is not None  # set by for_model
    recipe, started, before = config.recipe, time.perf_counter(), state.seconds
    per_epoch = math.ceil(rows.num_rows / recipe.rows_per_step)
    steps = recipe.epochs * per_epoch
    every = max(1, steps // POINTS)
    total, count = torch.full((), state.total, dtype=torch.float64, device=compute.device), state.count
    points: list[tuple[int, Tensor]] = []
    objective.train()
    for slots in batches(rows, recipe, compute.seed, epoch, skip=state.step - epoch * per_epoch):
        rate = peak * rate_share(config.schedule, state.step, steps)
        loss, weight = train_on_slots(
            slots, objective, optimizer, compute, step=state.step, rate=rate, clip_norm=config.optimizer.clip_norm
        )
        total, count = total + loss, count + weight
        state.step, state.tokens = state.step + 1, state.tokens + sum(batch.tokens for _, batch in slots)
        if state.step % every == 0:
            points.append((state.step, total / count))
            total, count = torch.zeros_like(total), 0.0
        if checkpoints and checkpoints.due():
            state.curve += _points_as_floats(points)
            points = []
            state.total, state.count = float(total), float(count)
            state.seconds = before + time.perf_counter() - started
            checkpoints.save(state, _task_of(objective), optimizer)
    if state.step % every:
        points.append((state.step, total / count))
    state.curve += _points_as_floats(points)
    state.total, state.count, state.seconds = 0.0, 0.0, before + time.perf_counter() - started


def _points_as_floats(points: list[tuple[int, Tensor]]) -> list[tuple[int, float]]:
    """Return points of a learning curve as floats; the host waits for the device only once."""
    values = torch.stack([mean for _, mean in points]).tolist() if points else []
    return [(step, value) for (step, _), value in zip(points, values, strict=True)]


def train_on_slots(
    slots: Sequence[Slot],
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
    compute: StepContext,
    *,
    step: int,
    rate: float,
    clip_norm: float,
) -> tuple[Tensor, Tensor | int]:
    """Train on one step; `slots` are the slots of all ranks.

    Return (total, count), both over all ranks: total / count is the step's loss. `total` is float64. The host does not
    wait for a GPU.
    """
    on_device = [(slot, batch.to(compute.device)) for slot, batch in slots]
    module = _task_of(objective)
    counts = _summed_counts([module.counts(batch) for _, batch in on_device])
    shares = divisors(counts, module.weights)
    mine = on_device[compute.rank :: compute.world]
    # The smallest step of an epoch may have no slot for this rank, but the rank must still take part in the reduction
    # of gradients. So it computes another rank's slot with a divisor of infinity, which makes the gradients 0.
    taken, divided_by = (mine, shares) if mine else (on_device[:1], dict.fromkeys(shares, math.inf))
    sums, _ = train_step(objective, optimizer, taken, divided_by, compute, step=step, rate=rate, clip_norm=clip_norm)
    # The terms have different counts, so the loss is the sum of their weighted means. The returned total is the loss
    # times the last term's count, because the caller divides by that count.
    count = list(counts.values())[-1]
    total: Any = sum(value * (count / shares[term]) for term, value in sums.items())
    if not mine:
        total = torch.zeros_like(total)
    if compute.world > 1:
        dist.all_reduce(total)
    return total, count


def _summed_counts(of_slots: Sequence[Mapping[str, int | Tensor]]) -> dict[str, Any]:
    """Return term -> sum of its counts over slots. Tensors are at least 1e-9, so that no step divides by 0."""
    sums: dict[str, Any] = {term: sum(counts[term] for counts in of_slots) for term in of_slots[0]}
    return {term: count.clamp(min=1e-9) if isinstance(count, Tensor) else count for term, count in sums.items()}


def _task_of(objective: nn.Module) -> TaskObjective:
    """Return the module inside DistributedDataParallel; the module itself if it is not wrapped."""
    return getattr(objective, "module", objective)


def seen_words(config: Finetune, module: TaskObjective, rows: pa.Table) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that opens a context in which only the word embeddings that `rows` use are trained.

    The context is a no-op if word embeddings are frozen. It is also a no-op under LAMB, which needs the norm of the
    whole table.
    """
    embeddings = module.encoder.embeddings
    if isinstance(config.optimizer, Lamb) or not embeddings.words.weight.requires_grad:
        return nullcontext
    return partial(
        SeenWords(embeddings.words, torch.tensor(rows["ids"].combine_chunks().flatten().to_numpy())).train_in,
        embeddings,
    )


def load_encoder(pretrained: nn.Module, module: TaskObjective) -> TaskObjective:
    """Load a pretrained encoder's weights into the module and return the module.

    The pooler may be missing in the pretrained encoder or in the module.
    """
    given, own = pretrained.state_dict(), module.encoder.state_dict()
    assert all(name.startswith("pooler.") for name in given.keys() ^ own.keys()), "encoders differ beyond the pooler"
    module.encoder.load_state_dict({name: given.get(name, tensor) for name, tensor in own.items()})
    return module
