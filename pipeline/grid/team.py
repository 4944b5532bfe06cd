"""The other workers of a trial: actors on its machine that train their slots of each step."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import timedelta

import ray
import torch.distributed as dist
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pipeline.config.finetune import Finetune
from pipeline.finetune import trials as trial_work
from pipeline.finetune.problems import Problem
from pipeline.finetune.trials import Trial
from pipeline.train.hardware import device_of
from pipeline.train.initial import Initial
from pipeline.train.process_group import join, listen

LONGEST_WAIT = timedelta(hours=12)
"""For rank 0, which scores the development splits alone; that a worker of the group is gone is seen at once."""
START_WAIT = timedelta(minutes=5)
"""For all workers to join the group."""


@contextmanager
def workers(trial: Trial, problem: ray.ObjectRef, initial: Initial, share: dict[str, float]) -> Generator[None]:
    """Run the other workers of a trial, each with `share` CPUs and GPUs; inside, this process is rank
    0 of their group.
    """
    config = trial.config
    group, world = get_current_placement_group(), config.trials.workers
    others = [
        ray.remote(Worker)
        .options(
            num_cpus=share["CPU"],
            num_gpus=share.get("GPU", 0.0),
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
        )
        .remote(trial, [problem], initial, rank)
        for rank in range(1, world)
    ]
    try:
        ray.get([other.ready.remote() for other in others])
        port = listen()
        done = [other.train.remote(port) for other in others]
        try:
            join(0, world, port, _backend(config), LONGEST_WAIT, START_WAIT)
            yield
        except RuntimeError:  # dist.DistError is a subclass
            with suppress(ray.exceptions.GetTimeoutError):  # the others still wait: the error is of this process
                ray.get(done, timeout=10)  # raises an error of the others, which caused the one here
            raise
        ray.get(done)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        for other in others:
            ray.kill(other)


def _backend(config: Finetune) -> str:
    """Torch's backend for the gradients of a trial's device."""
    return "nccl" if device_of(config.placement, config.trials.gpus).type == "cuda" else "gloo"


class Worker:
    """One worker of a trial but rank 0."""

    def __init__(self, trial: Trial, problem: list[ray.ObjectRef], initial: Initial, rank: int) -> None:
        self.trial, self.rank = trial, rank
        self.problem: Problem = ray.get(problem[0])
        self.initial = initial

    def ready(self) -> None:
        """Return once the process is there."""

    def train(self, port: int) -> None:
        """Join the group of rank 0 at this port, and train until it ends."""
        config = self.trial.config
        join(self.rank, config.trials.workers, port, _backend(config), LONGEST_WAIT, START_WAIT)
        try:
            trial_work.assist(self.trial, self.problem, self.initial, self.rank)
        finally:
            dist.destroy_process_group()
