"""Choose how many runs of an ablation are trained at the same time, and the CPUs of each run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.config.ablate import Ablate
from pipeline.config.placement import Placement
from pipeline.config.workers import WorkerRange
from pipeline.errors import ConfigError
from pipeline.on_ray.cluster import WorkerResources, fit_workers


@dataclass(frozen=True, kw_only=True)
class Room:
    """Room for runs in a cluster."""

    at_once: int
    """Number of runs that are trained at the same time."""
    placement: Placement
    """Placement of each run. A run's workers and data stream take at most the run's share of the cluster's CPUs."""


def room_for(config: Ablate, runs: int, nodes: Sequence[Mapping[str, float]]) -> Room:
    """Return the room for `runs` runs of an ablation. `nodes`: resources of each live node.

    If the budget is in minutes, several runs are trained at the same time only on GPUs, because runs that share CPUs
    slow each other down. Raises ConfigError if at_once asks for several runs on CPUs with a budget in minutes. Also
    raises ConfigError if no run fits.
    """
    if config.placement.autoscaled:
        gpu, most = config.placement.device == "cuda", config.at_once or 1
    else:
        resources = fit_workers(config.placement, config.worker_range, nodes)
        gpu, most = resources.gpu, _most_runs(config, resources, nodes)
    if config.minutes is not None and not gpu:
        if config.at_once is not None and config.at_once > 1:
            raise ConfigError(
                f"at_once ({config.at_once}) with minutes ({config.minutes:g}): runs on the same CPUs slow each other "
                "down; leave at_once out, or give tokens instead of minutes"
            )
        most = 1
    wanted = min(most, runs, config.at_once or most)
    if config.placement.autoscaled:
        return Room(at_once=wanted, placement=config.placement)
    return next(room for number in range(wanted, 0, -1) if (room := _room(config, number, nodes)) is not None)


def _most_runs(config: Ablate, resources: WorkerResources, nodes: Sequence[Mapping[str, float]]) -> int:
    """Return how many runs fit at the same time, at least 1.

    A run fits if the nodes have enough GPUs and custom resources for its workers. Without GPUs, the nodes must also
    have one core for each thread of the workers. If placement.threads is not set, the workers of one run use all
    cores, so the result is 1.
    """
    workers = 0.0
    for node in nodes:
        bounds = [node.get(name, 0) for name in resources.to_ray() if name != "CPU"]
        if not resources.gpu:
            bounds.append(node.get("CPU", 0) // config.placement.threads if config.placement.threads else 0)
        workers += min(bounds)
    return max(1, int(workers // config.worker_range.most))


def _room(config: Ablate, runs: int, nodes: Sequence[Mapping[str, float]]) -> Room | None:
    """Return the room for `runs` runs, each with an equal share of the CPUs; None if their workers do not fit."""
    if runs == 1:
        return Room(at_once=1, placement=config.placement)
    workers = runs * config.worker_range.most
    try:
        share = fit_workers(config.placement, WorkerRange(least=workers, most=workers), nodes).cpus
    except ConfigError:
        return None
    free = sum(node.get("CPU", 0) for node in nodes) - workers * share
    own = config.placement.data_cpus or math.floor(1000 * free / runs) / 1000
    return Room(at_once=runs, placement=replace(config.placement, worker_cpus=share, data_cpus=own))
