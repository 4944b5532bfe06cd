"""Learning rate as a function of the step."""

import math
from collections.abc import Callable

from pipeline.config.jobs import Pretrain
from pipeline.config.phases import OnePhase
from pipeline.config.training import (
    ConstantRate,
    CosineDecay,
    LinearDecay,
    PolynomialDecay,
    Schedule,
    WarmupStableDecay,
)


def warmup_and_remaining(warmup_share: float, step: int, steps: int) -> tuple[float, float]:
    """Share of the peak rate that the warm-up gives, linear from above zero, and the share of the steps after it that is left."""
    warmup = round(warmup_share * steps)
    return min(1.0, (step + 1) / max(1, warmup)), min(1.0, max(0.0, (steps - step) / max(1, steps - warmup)))


def linear_decay(schedule: LinearDecay, step: int, steps: int) -> float:
    """Linear over the warm-up, then linear towards zero at `steps`."""
    warmed, remaining = warmup_and_remaining(schedule.warmup_share, step, steps)
    return warmed * remaining


def cosine_decay(schedule: CosineDecay, step: int, steps: int) -> float:
    """Linear over the warm-up, then half a cosine towards zero at `steps`."""
    warmed, remaining = warmup_and_remaining(schedule.warmup_share, step, steps)
    return warmed * (1 - math.cos(math.pi * remaining)) / 2


def polynomial_decay(schedule: PolynomialDecay, step: int, steps: int) -> float:
    """Linear over the warm-up, then a power of what is left towards zero at `steps`."""
    warmed, remaining = warmup_and_remaining(schedule.warmup_share, step, steps)
    return warmed * remaining**schedule.power


def constant_rate(schedule: ConstantRate, step: int, steps: int) -> float:
    """Linear over the warm-up, then 1."""
    return min(1.0, (step + 1) / max(1, schedule.warmup_steps))


def warmup_stable_decay(schedule: WarmupStableDecay, step: int, steps: int) -> float:
    """Linear over the warm-up, 1, and in the decay linear towards zero at `steps`."""
    stable = schedule.stable_until(steps)
    decayed = 1.0 if step < stable else max(0.0, (steps - step) / (steps - stable + 1))
    return decayed * min(1.0, (step + 1) / max(1, schedule.warmup_steps))


SCHEDULES: dict[type, Callable[..., float]] = {
    LinearDecay: linear_decay,
    ConstantRate: constant_rate,
    CosineDecay: cosine_decay,
    PolynomialDecay: polynomial_decay,
    WarmupStableDecay: warmup_stable_decay,
}


def rate_share(schedule: Schedule, step: int, steps: int) -> float:
    """Share of the peak rate at a step (from 0)."""
    return SCHEDULES[type(schedule)](schedule, step, steps)


GROWS: tuple[type, ...] = (ConstantRate, WarmupStableDecay)
"""Schedules with steps whose rates do not depend on the number of steps."""


def grows(config: Pretrain) -> bool:
    """Whether more steps may be asked of a run than it was started with; where its phases share the steps, they may not."""
    return type(config.schedule) in GROWS and isinstance(config.phases, OnePhase)


def decay_start(config: Pretrain) -> int | None:
    """The step whose checkpoint stays, so that the run may grow from there: the one at which a decay begins that only ends with the steps."""
    if not grows(config) or not isinstance(config.schedule, WarmupStableDecay):
        return None
    stable = config.schedule.stable_until(config.steps)
    return stable if stable < config.steps else None
