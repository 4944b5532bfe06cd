"""Decide whether several workers may record their steps: then they send gradients after the backward, not during it."""

from dataclasses import replace

from pipeline.config.jobs import Pretrain
from pipeline.model.flops import chip_of
from pipeline.train.plan import Machine, gradient_wait_seconds, gradients_of, loads, read_prices, run_seconds

MOST_WAIT = 0.05
"""Maximum share of a run's time that recorded steps may wait for gradients between machines."""


def wait_share(config: Pretrain, machine: Machine) -> float:
    """Return the share of a run's time that its most workers wait for gradients if their steps are recorded."""
    config = replace(config, placement=replace(config.placement, graphs="on"))
    gradients, work, world = gradients_of(config), list(loads(config)), config.worker_range.most
    waits = sum(gradient_wait_seconds(load, world, machine, gradients) for load in work)
    return waits / run_seconds(work, world, machine, gradients)


def overlap_problem(config: Pretrain, gpu: str, gpus: float | None) -> str | None:
    """Return what the workers of a run need so that recording their steps costs hardly any time; None if they have it.

    `gpu` is the name of their GPUs, and `gpus` the most of one machine; None if not known, then as in the price table.
    The network is that of the table's machines with such GPUs, the slowest of them.
    """
    world = config.worker_range.most
    if world == 1 or (gpus is not None and world <= gpus):
        return None
    machines = [machine for machine in read_prices() if machine.chip == chip_of(gpu)]
    if gpus is not None:
        machines = [replace(machine, gpus=int(gpus)) for machine in machines]
    if machines and all(world <= machine.gpus for machine in machines):
        return None
    share = max((wait_share(config, machine) for machine in machines), default=1.0)
    if share < MOST_WAIT:
        return None
    estimate = f"estimated: {share:.0%}" if machines else "its speed is not known"
    return f"all workers on one machine, or a network that takes less than {MOST_WAIT:.0%} of a step ({estimate})"
