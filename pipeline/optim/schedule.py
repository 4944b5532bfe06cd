"""Learning rate as a function of the step."""

import math
from collections.abc import Callable

from pipeline.config.jobs import Pretrain
from pipeline.config.training import (
    ConstantRate,
    CosineDecay,
    LinearDecay,
    PolynomialDecay,
    Schedule,
    WarmupStableDecay,
)
from pipeline.saved.naming import grows


def _warmup_and_remaining(warmup_share: float, step: int, steps: int) -> tuple[float, float]:
    """Return (warmed, remaining) for a step, both from 0 to 1.

    `warmed` is the share of the peak rate that the linear warm-up has reached; it is above 0 already at step 0.
    `remaining` is the share of the steps after the warm-up that are still to come.
    """
    warmup = round(warmup_share * steps)
    return min(1.0, (step + 1) / max(1, warmup)), min(1.0, max(0.0, (steps - step) / max(1, steps - warmup)))


def _linear_decay(schedule: LinearDecay, step: int, steps: int) -> float:
    """Return the share of the peak rate: linear warm-up, then linear decay to zero at `steps`."""
    warmed, remaining = _warmup_and_remaining(schedule.warmup_share, step, steps)
    return warmed * remaining


def _cosine_decay(schedule: CosineDecay, step: int, steps: int) -> float:
    """Return the share of the peak rate: linear warm-up, then half a cosine down to zero at `steps`."""
    warmed, remaining = _warmup_and_remaining(schedule.warmup_share, step, steps)
    return warmed * (1 - math.cos(math.pi * remaining)) / 2


def _polynomial_decay(schedule: PolynomialDecay, step: int, steps: int) -> float:
    """Return the share of the peak rate: linear warm-up, then a power of the share of steps that remain."""
    warmed, remaining = _warmup_and_remaining(schedule.warmup_share, step, steps)
    return warmed * remaining**schedule.power


def _constant_rate(schedule: ConstantRate, step: int, steps: int) -> float:
    """Return the share of the peak rate: linear warm-up, then 1."""
    return min(1.0, (step + 1) / max(1, schedule.warmup_steps))


def _warmup_stable_decay(schedule: WarmupStableDecay, step: int, steps: int) -> float:
    """Return the share of the peak rate: linear warm-up, then 1, then linear decay towards zero at `steps`."""
    stable = schedule.stable_until(steps)
    decayed = 1.0 if step < stable else max(0.0, (steps - step) / (steps - stable + 1))
    return decayed * min(1.0, (step + 1) / max(1, schedule.warmup_steps))


SCHEDULES: dict[type, Callable[..., float]] = {
    LinearDecay: _linear_decay,
    ConstantRate: _constant_rate,
    CosineDecay: _cosine_decay,
    PolynomialDecay: _polynomial_decay,
    WarmupStableDecay: _warmup_stable_decay,
}


def rate_share(schedule: Schedule, step: int, steps: int) -> float:
    """Return the learning rate of a step as a share of the peak rate; `step` counts from 0."""
    return SCHEDULES[type(schedule)](schedule, step, steps)


def decay_start(config: Pretrain) -> int | None:
    """Return the step at which the decay starts.

    The checkpoint of this step is kept, so that the run can be extended from this step. None if the run cannot be
    extended or has no decay.
    """
    if not grows(config) or not isinstance(config.schedule, WarmupStableDecay):
        return None
    stable = config.schedule.stable_until(config.steps)
    return stable if stable < config.steps else None
