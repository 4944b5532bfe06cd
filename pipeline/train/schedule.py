"""Learning rate as a function of the step."""

from collections.abc import Callable

from pipeline.config.training import ConstantRate, LinearDecay


def linear_decay(schedule: LinearDecay, step: int, steps: int) -> float:
    """Share of the peak rate at a step (from 0): linear from above zero over the warm-up, then linear towards zero at `steps`."""
    warmup = round(schedule.warmup_share * steps)
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))


def constant_rate(schedule: ConstantRate, step: int, steps: int) -> float:
    """Share of the peak rate at a step (from 0): linear from above zero over the warm-up, then 1."""
    return min(1.0, (step + 1) / max(1, schedule.warmup_steps))


SCHEDULES: dict[type, Callable[..., float]] = {LinearDecay: linear_decay, ConstantRate: constant_rate}

GROWS: tuple[type, ...] = (ConstantRate,)  # schedules whose rates do not depend on the number of steps


def rate_share(schedule: LinearDecay | ConstantRate, step: int, steps: int) -> float:
    """Share of the peak rate at a step (from 0)."""
    return SCHEDULES[type(schedule)](schedule, step, steps)
