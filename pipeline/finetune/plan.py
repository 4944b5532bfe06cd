"""Estimate how long the trials take, and reduce their seeds, epochs or rows to fit a time limit."""

import heapq
import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc
import torch

from pipeline.config.finetune import Finetune
from pipeline.errors import DataError
from pipeline.files import storage
from pipeline.finetune.problems import Problem
from pipeline.finetune.trial import epoch_rows, few_labels, seen_words, train_on_slots
from pipeline.finetune.trial_rows import batches
from pipeline.finetune.trials import autocast_for, build
from pipeline.optim.build import build_optimizer
from pipeline.train.hardware import device_of
from pipeline.train.initial import Initial
from pipeline.train.step import StepContext

LARGE = 10_000
"""A task with more training rows is large. Large tasks are reduced first: their scores vary little between seeds."""
STEPS, LEAST_STEPS, WARMUP = 30, 6, 2
"""Numbers of steps in the measurement of a problem.

At most STEPS steps are run. The measurement stops earlier if at least LEAST_STEPS steps have taken more than
MEASURED_SECONDS in total. The first WARMUP steps do not count.
"""
MEASURED_SECONDS = 3.0
EVALUATED = 0.4
"""Time to evaluate a row, as a share of the time to train on the row."""
START_SECONDS = 4.0
"""Fixed time per trial: process start, reading, saving."""
SURE = 0.9
"""Share of the remaining time that a plan may use.

The rest is a margin for errors of the estimate, and for the work after the trials (result table, models).
"""


@dataclass(frozen=True, kw_only=True)
class Share:
    """Numbers of seeds, epochs and rows of a problem's training."""

    seeds: int
    epochs: int
    rows: int | None
    """Maximum labelled training rows; None means all. Rows without a label are never left out."""


def size(share: Share) -> tuple[int, int, float]:
    """Return a sort key for shares of the same problem. A share with more training has a larger key."""
    return share.seeds, share.epochs, math.inf if share.rows is None else share.rows


def seconds_of(config: Finetune, problem: Problem, initial: Initial) -> float:
    """Measure a few training steps of one worker on this device, and return the estimated mean seconds per step.

    A step stands for rows_per_step rows of the problem, also if the trial groups these rows into other rows.

    The number of tokens differs between steps, and the measured steps may not be typical. So the estimate is the
    measured seconds per token, times the mean tokens per step of the whole problem.
    """
    device = device_of(config.placement, config.trials.gpus)
    autocast = autocast_for(config.placement, initial.model.width, device)
    threads = torch.get_num_threads()
    torch.set_num_threads(config.placement.threads or max(1, round(config.trials.cpus)))
    module = build(config, problem, initial, 0).to(device).train()
    times, tokens = [], []
    compute = StepContext(device=device, autocast=autocast, seed=0)
    unlabelled = problem.unlabelled.rows if problem.unlabelled else None
    whole = replace(config, recipe=replace(config.recipe, training_rows=None))
    rows = epoch_rows(whole, problem.task, problem.train, unlabelled, 0)
    few = few_labels(module, rows, config.recipe, 0)
    trained, rows = (few.encoder_task, few.pairs) if few else (module, rows)
    with seen_words(config, trained, rows)():
        optimizer = build_optimizer(config.optimizer, trained)
        for slots in itertools.islice(batches(rows, config.recipe, 0, 0), STEPS):
            start = time.perf_counter()
            float(train_on_slots(slots, trained, optimizer, compute, step=0, rate=0.0, clip_norm=1.0)[0])
            times.append(time.perf_counter() - start)
            tokens.append(sum(batch.tokens for _, batch in slots))
            if len(times) >= LEAST_STEPS and sum(times) > MEASURED_SECONDS:
                break
    torch.set_num_threads(threads)
    counted = slice(WARMUP if len(times) > WARMUP else 0, None)
    lengths = rows["ids"].combine_chunks().value_lengths()
    return (
        sum(times[counted])
        / sum(tokens[counted])
        * pc.sum(lengths).as_py()
        / math.ceil(problem.rows_per_epoch() / config.recipe.rows_per_step)
    )


def trial_seconds(config: Finetune, problem: Problem, per_step: float, share: Share) -> float:
    """Return the estimated seconds of one trial. `per_step` is the seconds per step with one worker."""
    steps = math.ceil(problem.rows_per_epoch(share.rows) / config.recipe.rows_per_step)
    evaluated = sum(split.rows.num_rows for split in problem.splits.values()) / config.recipe.rows_per_step
    trained = steps * _busiest_share(config)  # all workers train, but only the first worker evaluates
    return START_SECONDS + share.epochs * per_step * (trained + EVALUATED * evaluated)


def _busiest_share(config: Finetune) -> float:
    """Return the share of a step's slots that the busiest worker trains on. The other workers wait for this worker."""
    recipe, workers = config.recipe, config.trials.workers
    slot = recipe.rows_per_slot or math.ceil(recipe.rows_per_step / workers)
    slots = math.ceil(recipe.rows_per_step / slot)
    return math.ceil(slots / workers) / slots


def answering_seconds(config: Finetune, rows: Mapping[str, int], per_step: Mapping[str, float], at_once: int) -> float:
    """Return the estimated seconds to answer the test rows of all tasks in one process.

    The process has the cores of all `at_once` concurrent trials. `rows` maps a task to its number of rows to answer.
    `per_step` maps a task to its seconds per training step.
    """
    return (
        sum(EVALUATED * per_step[name] * count / config.recipe.rows_per_step for name, count in rows.items())
        / at_once
        / config.trials.workers
    )


def _smaller_shares(whole: Share, large: bool) -> list[Share]:
    """Return the shares to choose from, largest first.

    For a large task, the seeds are reduced first, then the epochs, then the rows. For a small task, only the seeds are
    reduced.
    """
    if not large:
        return [whole, replace(whole, seeds=min(whole.seeds, 2)), replace(whole, seeds=1)]
    one_seed = replace(whole, seeds=1)
    fewer = [replace(one_seed, epochs=epochs) for epochs in range(whole.epochs, 0, -1)]
    return [
        whole,
        *fewer,
        *(
            replace(fewer[-1], rows=rows)
            for rows in (100_000, 50_000, 20_000, 10_000, 5_000)
            if rows < (whole.rows or math.inf)
        ),
    ]


def makespan(seconds: Iterable[float], at_once: int) -> float:
    """Return the seconds until the last trial ends, if `at_once` trials run concurrently, longest trials first."""
    free = [0.0] * at_once
    for duration in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


def total_seconds(
    config: Finetune,
    problems: Sequence[Problem],
    per_step: dict[str, float],
    shares: dict[str, Share],
    at_once: int,
    settings: int,
) -> float:
    """Return the estimated seconds until all trials end.

    `settings` is the number of settings to try. If it is above 1, the trials that select a setting are included.
    """

    def each(problem: Problem) -> list[float]:
        share = shares[problem.task.name]
        return [trial_seconds(config, problem, per_step[problem.task.name], share)] * (
            share.seeds + (settings * config.search.seeds if settings > 1 else 0)
        )

    return makespan(itertools.chain.from_iterable(map(each, problems)), at_once)


def fit_to_time(
    config: Finetune,
    problems: Sequence[Problem],
    per_step: dict[str, float],
    at_once: int,
    settings: int,
    spent: float = 0.0,
) -> dict[str, Share]:
    """Return problem -> share to train. Shares are reduced until the trials fit the time limit.

    The limit is SURE times (config.minutes minus `spent` seconds). Large tasks are reduced before small tasks. Among
    large tasks, and among small tasks, the task whose trials take longest is reduced first. If even the smallest shares
    do not fit, the smallest shares are returned.
    """
    whole = Share(seeds=config.seeds, epochs=config.recipe.epochs, rows=config.recipe.training_rows)
    choices = {
        problem.task.name: _smaller_shares(
            whole, min(problem.train.rows.num_rows, whole.rows or problem.train.rows.num_rows) > LARGE
        )
        for problem in problems
    }
    indices = dict.fromkeys(choices, 0)
    by_name = {problem.task.name: problem for problem in problems}

    def chosen() -> dict[str, Share]:
        return {name: choices[name][index] for name, index in indices.items()}

    def cost(name: str) -> float:
        return total_seconds(config, [by_name[name]], per_step, chosen(), 1, settings)

    while config.minutes is not None and total_seconds(
        config, problems, per_step, chosen(), at_once, settings
    ) > SURE * (60 * config.minutes - spent):
        left = [name for name in choices if indices[name] + 1 < len(choices[name])]
        if not left:
            break
        large = [
            name for name in left if choices[name][-1].epochs < whole.epochs or choices[name][-1].rows != whole.rows
        ]
        indices[max(large or left, key=cost)] += 1
    return chosen()


def write_plan(location: str, shares: dict[str, Share], per_step: dict[str, float]) -> None:
    """Write the shares, and the seconds per step from which they were planned.

    A rerun reads this file and runs the same trials without measuring again.
    """
    storage.write_json(
        location, {name: vars(share) | {"seconds_per_step": per_step[name]} for name, share in shares.items()}
    )


def read_plan(location: str) -> tuple[dict[str, Share], dict[str, float]] | None:
    """Return the shares and seconds per step that `write_plan` wrote; None if the file does not exist.

    Raises DataError if the file is damaged.
    """
    try:
        written = storage.read_json(location)
        shares = {
            name: Share(seeds=entry["seeds"], epochs=entry["epochs"], rows=entry["rows"])
            for name, entry in written.items()
        }
        return shares, {name: entry["seconds_per_step"] for name, entry in written.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{location} cannot be read ({storage.first_line(error)}): delete it and run the same command "
            "again to plan the trials again"
        ) from error


def left_out(problem: Problem, config: Finetune, share: Share) -> str | None:
    """Return a line about the reduced seeds, epochs and rows; None if nothing was reduced to save time."""
    rows = problem.train.rows.num_rows
    parts = [f"{share.seeds} of {config.seeds} seeds"] * (share.seeds < config.seeds)
    parts += [f"{share.epochs} of {config.recipe.epochs} epochs"] * (share.epochs < config.recipe.epochs)
    parts += (
        [f"{share.rows:,} of {rows:,} rows"]
        if share.rows and share.rows != config.recipe.training_rows and share.rows < rows
        else []
    )
    return f"{problem.task.name}: {', '.join(parts)}, to fit {config.minutes:g} minutes" if parts else None
