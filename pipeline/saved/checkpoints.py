"""Names of files and folders of saved models; the checkpoints of a run, and the newest sound one."""

import re

from pipeline.errors import CheckpointError, ConfigError, TakenOver, listed
from pipeline.files import storage
from pipeline.reporting import Report

WEIGHTS, CONFIG, OPTIMIZER, STATE = "model.safetensors", "config.json", "optimizer.safetensors", "state.json"
CHECKPOINTS = "checkpoints"
"""Name of the folder with the checkpoints, inside the run's folder."""
GENERATOR = "generator"
"""Folder of the published generator, inside the discriminator's folder."""
CARD = "README.md"
"""Model card, which people edit after it was published."""
TASK = "task.json"
"""File with the task of a fine-tuned model: kind, labels, truncation, pooling, thresholds."""
NAME = re.compile(r"step-(\d+)(?:-attempt-(\d+))?")
LEASE = "lease.json"
"""File of a run in an object store: its driver, and from which step each attempt counts (see files/lease.py)."""


def folder_of(run_folder: str, step: int, attempt: int = 0) -> str:
    """Return the folder of the checkpoint after `step` updates; `attempt` is 0 for a run on disk."""
    return storage.join(run_folder, CHECKPOINTS, f"step-{step:08d}" + f"-attempt-{attempt}" * (attempt > 0))


def step_of(name: str) -> int:
    """Return the step in the name of a checkpoint's folder. Raises ValueError for another name."""
    if (match := NAME.fullmatch(name)) is None:
        raise ValueError(f"{name} is no name of a checkpoint")
    return int(match[1])


def steps_saved(run_folder: str) -> list[int]:
    """Return the steps that have a checkpoint folder, published or not, ascending."""
    return list(saved(run_folder)[0])


def saved(run_folder: str) -> tuple[dict[int, str], list[tuple[int, int]]]:
    """Return step -> folder of the checkpoints, published or not, ascending by step; and those that do not count.

    The latter, as (step, attempt), were written by an attempt after a later attempt had begun at an earlier step.
    """
    names = storage.children(storage.join(run_folder, CHECKPOINTS))
    found = sorted((int(match[1]), int(match[2] or 0)) for name in names if (match := NAME.fullmatch(name)))
    began: dict[str, int] = {}
    if any(attempt for _, attempt in found):
        began = (storage.read_object(storage.join(run_folder, LEASE)) or {}).get("began", {})
    superseded = [
        (step, attempt)
        for step, attempt in found
        if attempt and any(int(later) > attempt and first < step for later, first in began.items())
    ]
    counting = [each for each in found if each not in superseded]
    return {step: folder_of(run_folder, step, attempt) for step, attempt in counting}, superseded


def _is_published(folder: str) -> bool:
    """Return whether a checkpoint has its manifest."""
    return storage.exists(storage.join(folder, storage.MANIFEST))


def newest_attempt(run_folder: str) -> int:
    """Return the highest attempt in the names of checkpoints; 0 if none has one."""
    names = storage.children(storage.join(run_folder, CHECKPOINTS))
    return max((int(match[2] or 0) for name in names if (match := NAME.fullmatch(name))), default=0)


def require_current(run_folder: str, attempt: int) -> None:
    """Raise TakenOver if another driver has taken the run over from this attempt; a no-op for 0, a run on disk."""
    lease = storage.read_object(storage.join(run_folder, LEASE)) if attempt else None
    if lease and lease["attempt"] != attempt:
        raise taken_over(run_folder, attempt, f"{lease['driver']} (attempt {lease['attempt']})")


def taken_over(run_folder: str, attempt: int, driver: str) -> TakenOver:
    """Return the error of an attempt that another driver has superseded."""
    return TakenOver(
        f"run {run_folder} was taken over by {driver}: this attempt ({attempt}) stops and publishes nothing more"
    )


def newest_sound(run_folder: str, report: Report) -> str | None:
    """Return the folder of the newest checkpoint with all files as in its manifest; None if no checkpoint is published.

    Reports each damaged checkpoint that is skipped. Raises CheckpointError if all checkpoints are damaged. Raises
    OSError if storage fails, because falling back to an older checkpoint would repeat work. No other function selects
    the checkpoint to resume from, so the stream's cursor and the weights always agree.
    """
    first_problem = None
    folders, superseded = saved(run_folder)
    beyond = [(step, attempt) for step, attempt in superseded if _is_published(folder_of(run_folder, step, attempt))]
    if beyond:
        ignored = listed(f"step {step} of attempt {attempt}" for step, attempt in beyond)
        report(f"ignoring what an attempt wrote beyond the step from which a later one counts: {ignored}")
    for folder in reversed(folders.values()):
        problem = storage.mismatch(folder)
        if problem is None:
            return folder
        if problem == f"{storage.MANIFEST} is missing":  # not published: its writing or deletion was interrupted
            continue
        first_problem = first_problem or f"{folder}: {problem}"
        report(f"checkpoint {folder} is damaged ({problem}); trying the checkpoint before it")
    if first_problem:
        raise CheckpointError(
            f"all checkpoints are damaged (the newest: {first_problem}); start again under another --name, "
            f"or delete {storage.join(run_folder, 'checkpoints')}"
        )
    return None


def find_checkpoint(folder: str, step: int | None, report: Report) -> str:
    """Return the folder of the run's checkpoint after `step` steps; for None, of the newest undamaged checkpoint.

    Raises ConfigError if the run has no such checkpoint, and CheckpointError if the checkpoint is damaged.
    """
    folders = saved(folder)[0]
    steps = [number for number, path in folders.items() if _is_published(path)]
    steps_text = listed(steps)
    if not steps:
        raise ConfigError(f"{folder} has no checkpoint yet: wait for the first")
    if step is None:
        try:
            newest = newest_sound(folder, report)
        except OSError as error:
            raise CheckpointError(f"the checkpoints of {folder} cannot be read: {storage.first_line(error)}") from error
        assert newest is not None  # since `steps` is not empty
        return newest
    if step not in steps:
        raise ConfigError(f"step ({step}) has no checkpoint in {folder}: choose one of {steps_text}")
    path = folders[step]
    if problem := storage.damage(path):
        raise CheckpointError(f"checkpoint {path} is damaged ({problem}): export another step ({steps_text})")
    return path
