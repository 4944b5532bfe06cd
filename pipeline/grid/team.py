"""Run all workers of a trial except rank 0. Each worker is an actor on rank 0's machine, and trains its own slots."""

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
"""Maximum time that workers wait while rank 0 scores the splits alone. A worker that dies is noticed at once."""
START_WAIT = timedelta(minutes=5)
"""Maximum time until all workers have joined the group."""


@contextmanager
def workers(trial: Trial, problem: ray.ObjectRef, initial: Initial, share: dict[str, float]) -> Generator[None]:
    """Run all workers of a trial except rank 0, each with the CPUs and GPUs of `share`.

    Inside the context, this process is rank 0 of the workers' process group.
    """
    config = trial.config
    group, world = get_current_placement_group(), config.trials.workers
    others = [
        ray.remote(TeamWorker)
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
            # If another worker failed, its error caused the error of this process: ray.get raises the error of that
            # worker. If the other workers still wait, this process failed first: raise the error of this process.
            with suppress(ray.exceptions.GetTimeoutError):
                ray.get(done, timeout=10)
            raise
        ray.get(done)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        for other in others:
            ray.kill(other)


def _backend(config: Finetune) -> str:
    """Return torch's backend for communication between the workers: nccl on GPUs, else gloo."""
    return "nccl" if device_of(config.placement, config.trials.gpus).type == "cuda" else "gloo"


class TeamWorker:
    """One worker of a trial, with a rank above 0; `problem` is a list with one object reference."""

    def __init__(self, trial: Trial, problem: list[ray.ObjectRef], initial: Initial, rank: int) -> None:
        self.trial, self.rank = trial, rank
        self.problem: Problem = ray.get(problem[0])
        self.initial = initial

    def ready(self) -> None:
        """Return once the process has started."""

    def train(self, port: int) -> None:
        """Join the process group and train until the trial ends. The group's store on rank 0 listens at `port`."""
        config = self.trial.config
        join(self.rank, config.trials.workers, port, _backend(config), LONGEST_WAIT, START_WAIT)
        try:
            trial_work.assist(self.trial, self.problem, self.initial, self.rank)
        finally:
            dist.destroy_process_group()
