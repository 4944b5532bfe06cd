"""One fine-tuning on one device: encoder and rows in, scores out."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from pipeline.batch import Batch, collate_labelled
from pipeline.config.finetune import Finetune
from pipeline.model.encoder import Encoder
from pipeline.objectives.sequences import SequenceTask
from pipeline.tasks.metrics import score
from pipeline.tasks.task import Task
from pipeline.train.optim import build_optimizer
from pipeline.train.schedule import rate_share
from pipeline.train.step import seed_dropout, update

ROWS_AT_ONCE = 64  # in evaluation


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a trial came to."""

    scores: dict[str, dict[str, float]]
    """Split -> metric -> value, after the last step."""
    losses: list[float]
    """Mean training loss of each epoch."""
    steps: int
    seconds: float
    """Of training; evaluation is not in it."""


def run_trial(
    settings: Finetune, task: Task, module: SequenceTask, train: pa.Table, splits: Mapping[str, pa.Table], *, seed: int, device: torch.device, autocast: torch.autocast
) -> Result:
    """Train the module on the rows of `train` (schema ENCODED) and score it on each of `splits`."""
    optimizer, begun, losses, step = build_optimizer(settings.optimizer, module), time.perf_counter(), [], 0
    steps = settings.epochs * math.ceil(train.num_rows / settings.rows_per_step)
    module.train()
    for epoch in range(settings.epochs):
        sums = torch.zeros((), dtype=torch.float64, device=device)
        for batch in batches(train, settings.rows_per_step, seed, epoch):
            seed_dropout(seed, step, 0)
            with autocast:
                total, count = module(batch.to(device))["task"]
            (total / count).backward()
            update(optimizer, module, rate=settings.optimizer.learning_rate * rate_share(settings.schedule, step, steps), clip_norm=settings.optimizer.clip_norm)
            sums += total.detach().double()
            step += 1
        losses.append(sums.item() / train.num_rows)
    seconds = time.perf_counter() - begun
    scores = {name: score(task, predictions(module, rows, device, autocast), rows["label"].to_numpy()) for name, rows in splits.items()}
    return Result(scores=scores, losses=losses, steps=step, seconds=seconds)


def batches(rows: pa.Table, rows_per_step: int, seed: int, epoch: int) -> Iterator[Batch]:
    """All rows once, in an order that is a function of (seed, epoch); the last batch has what is left."""
    order = np.random.Generator(np.random.Philox(key=np.random.SeedSequence((seed, epoch)).generate_state(2, np.uint64))).permutation(rows.num_rows)
    for start in range(0, len(order), rows_per_step):
        yield collate_labelled(rows.take(order[start : start + rows_per_step]).combine_chunks())


def predictions(module: SequenceTask, rows: pa.Table, device: torch.device, autocast: torch.autocast) -> np.ndarray:
    """The module's answers (N,) in the order of the rows: class numbers, or values."""
    module.eval()
    # Rows of similar length go together, so that little is computed on padding.
    order = np.argsort(rows["ids"].combine_chunks().value_lengths().to_numpy(), kind="stable")
    answers = []
    with torch.inference_mode(), autocast:
        for start in range(0, len(order), ROWS_AT_ONCE):
            batch = collate_labelled(rows.take(order[start : start + ROWS_AT_ONCE]).combine_chunks())
            answers.append(module.predict(batch.to(device)).float().cpu().numpy())
    found = np.empty(len(order), dtype=np.float64)
    found[order] = np.concatenate(answers)
    return found


def with_encoder(pretrained: Encoder, module: SequenceTask) -> SequenceTask:
    """The module with a pretrained encoder's weights in it."""
    module.encoder.load_state_dict(pretrained.state_dict())
    return module
