"""Names of files and folders of saved models; the checkpoints of a run, and the newest sound one."""

from pipeline.errors import CheckpointError, ConfigError, listed
from pipeline.files import storage
from pipeline.reporting import Report

WEIGHTS, CONFIG, OPTIMIZER, STATE = "model.safetensors", "config.json", "optimizer.safetensors", "state.json"
CHECKPOINTS = "checkpoints"
"""Name of the folder with the checkpoints, inside the run's folder."""
GENERATOR = "generator"
"""Folder of the published generator, inside the discriminator's folder."""
TASK = "task.json"
"""File with the task of a fine-tuned model: kind, labels, truncation, pooling, thresholds."""


def folder_of(run_folder: str, step: int) -> str:
    """Return the folder of the checkpoint after `step` updates."""
    return storage.join(run_folder, CHECKPOINTS, f"step-{step:08d}")


def steps_saved(run_folder: str) -> list[int]:
    """Return the steps that have a checkpoint folder, published or not, ascending."""
    names = storage.children(storage.join(run_folder, CHECKPOINTS))
    return sorted(int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdigit())


def newest_sound(run_folder: str, report: Report) -> str | None:
    """Return the folder of the newest checkpoint with all files as in its manifest; None if no checkpoint is published.

    Reports each damaged checkpoint that is skipped. Raises CheckpointError if all checkpoints are damaged. Raises
    OSError if storage fails, because falling back to an older checkpoint would repeat work. No other function selects
    the checkpoint to resume from, so the stream's cursor and the weights always agree.
    """
    first_problem = None
    for step in reversed(steps_saved(run_folder)):
        folder = folder_of(run_folder, step)
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
    steps = [
        saved
        for saved in steps_saved(folder)
        if storage.exists(storage.join(folder_of(folder, saved), storage.MANIFEST))
    ]
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
    path = folder_of(folder, step)
    if problem := storage.damage(path):
        raise CheckpointError(f"checkpoint {path} is damaged ({problem}): export another step ({steps_text})")
    return path
