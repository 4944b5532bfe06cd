"""Training state on disk: published whole or not at all, verified before it is used.

RUN/checkpoints/step-00000500/
    model.safetensors config.json vocab.txt tokenizer.json tokenizer_config.json     the published format
    optimizer.safetensors state.json                                                 what resuming needs
    manifest.json                                                                    size and SHA-256 of each, last
"""

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from pyarrow import fs
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from pipeline import storage
from pipeline.config.model import Model
from pipeline.corpus.order import Cursor
from pipeline.errors import CheckpointError
from pipeline.local_files import scratch_folder
from pipeline.model.weights import from_published, published_config, to_published
from pipeline.text.vocabulary import Vocabulary, save_vocabulary
from pipeline.train.optim import load_optimizer, optimizer_tensors

WEIGHTS, CONFIG, OPTIMIZER, STATE = "model.safetensors", "config.json", "optimizer.safetensors", "state.json"
TRAINING_ONLY = (OPTIMIZER, STATE)


@dataclass(frozen=True, kw_only=True)
class State:
    """Where a run stands after `step` updates."""

    step: int = 0
    cursor: Cursor | None = None
    """Last row consumed; none before the first step."""
    crc32: int = 0
    """Of the rows of all steps so far, in order."""
    tokens: int = 0
    squares: int = 0
    """Of the lengths of all sequences so far, summed."""
    masked: int = 0
    seconds: float = 0.0
    """Training time so far; evaluation is not in it."""
    wait_seconds: float = 0.0
    step_times: dict[str, float] = field(default_factory=dict)
    """How many steps took how long, in the meter's buckets."""
    interval: dict[str, float] = field(default_factory=dict)
    """What the meter holds since the last logged step."""
    heldout_loss: float | None = None
    """Of masked tokens, where these weights were evaluated."""
    heldout_before: dict[str, float] = field(default_factory=dict)
    """Held-out metrics of the untrained model, at the first phase's length."""


def folder_of(run_folder: str, step: int) -> str:
    """Where the checkpoint after `step` updates lies."""
    return storage.join(run_folder, "checkpoints", f"step-{step:08d}")


def steps_saved(run_folder: str) -> list[int]:
    """Steps whose checkpoint folder is there, whole or not, rising."""
    names = storage.children(storage.join(run_folder, "checkpoints"))
    return sorted(int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdigit())


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Weights by their published names and the optimiser's state, on the host; training does not change them."""

    weights: dict[str, torch.Tensor]
    optimizer: dict[str, torch.Tensor]


def snapshot(module: nn.Module, optimizer: torch.optim.Optimizer) -> Snapshot:
    """A copy of what a checkpoint holds of the model as it is now."""
    weights = {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in to_published(module.state_dict()).items()
    }
    return Snapshot(weights=weights, optimizer=optimizer_tensors(optimizer, module))


def save(
    run_folder: str,
    state: State,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    model: Model,
    vocabulary: Vocabulary,
) -> str:
    """Publish a checkpoint of the model as it is now and give its folder."""
    return publish(run_folder, state, snapshot(module, optimizer), model, vocabulary)


def publish(run_folder: str, state: State, taken: Snapshot, model: Model, vocabulary: Vocabulary) -> str:
    """Publish a checkpoint and give its folder. Raises OSError or SafetensorError where it cannot be written."""
    target = folder_of(run_folder, state.step)
    with scratch_folder("checkpoint") as folder:
        save_file(taken.weights, folder / WEIGHTS, metadata={"format": "pt"})
        save_file(taken.optimizer, folder / OPTIMIZER)
        config = published_config(model, len(vocabulary.tokens), vocabulary.pad_id)
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        (folder / STATE).write_text(json.dumps(asdict(state), indent=1) + "\n")
        save_vocabulary(vocabulary, folder, model.maximum_positions)
        storage.publish(folder, target, {"step": state.step})
    return target


def write_position(run_folder: str, step: int, cursor: Cursor) -> None:
    """Write down where the stream stands after `step` updates; it stays when the checkpoint goes."""
    storage.write_json(storage.join(run_folder, "positions", f"step-{step:08d}.json"), asdict(cursor))


def positions(run_folder: str) -> list[int]:
    """Steps whose position was written down, rising."""
    return sorted(
        int(name[5:-5]) for name in storage.children(storage.join(run_folder, "positions")) if name.endswith(".json")
    )


def read_position(run_folder: str, step: int) -> Cursor:
    """Where the stream stood after `step` updates."""
    return Cursor(**storage.read_json(storage.join(run_folder, "positions", f"step-{step:08d}.json")))


def delete_old_checkpoints(run_folder: str, keep: int, step: int, stays: Collection[int] = ()) -> None:
    """Delete all but the newest `keep` published checkpoints up to `step`, the last one, and but those of the steps in `stays`; what lies beyond it is not sound and does not count."""
    there = [saved for saved in steps_saved(run_folder) if saved <= step]
    kept = [saved for saved in there if storage.exists(storage.join(folder_of(run_folder, saved), storage.MANIFEST))][
        -keep:
    ]
    for old in there:
        if old not in kept and old not in stays:
            storage.delete_folder(folder_of(run_folder, old))


def best_step(run_folder: str, first: int, last: int, sound: set[int] | None = None) -> int | None:
    """The step after `first` and up to `last` whose sound checkpoint has the lowest held-out loss; None where none was evaluated. Raises OSError where storage refuses to say.

    Those in `sound` are not read through again, and one that was is put into it: a whole checkpoint may come from far away.
    """
    losses = {}
    for step in [saved for saved in steps_saved(run_folder) if first < saved <= last]:
        try:
            losses[step] = read_state(folder_of(run_folder, step)).heldout_loss
        except (OSError, ValueError, KeyError, TypeError) as error:  # a damaged one is not the best, whatever it says
            if isinstance(error, OSError) and not storage.is_file_lost(error):
                raise
    evaluated = sorted((loss, step) for step, loss in losses.items() if loss is not None)
    sound = set() if sound is None else sound
    for _, step in evaluated:
        if step in sound or storage.mismatch(folder_of(run_folder, step)) is None:
            sound.add(step)
            return step
    return None


def roll_back_to(run_folder: str, step: int) -> None:
    """Make the checkpoint of a step the newest, by deleting those after it. Raises CheckpointError, and deletes nothing, where it is not sound."""
    folder = folder_of(run_folder, step)
    if problem := storage.damage(folder):
        raise CheckpointError(
            f"{folder}, from which the run would go on with more steps, is not sound ({problem}): choose another --name"
        )
    for later in reversed([saved for saved in steps_saved(run_folder) if saved > step]):
        storage.delete_folder(folder_of(run_folder, later))


def newest_sound(run_folder: str, report: Callable[[str], None]) -> str | None:
    """Folder of the newest checkpoint whose files all match its manifest; None when none was ever published.

    Reports each that is passed over. Raises CheckpointError when there are checkpoints and all are damaged, OSError where storage refuses to say: an older one would do the work of the newest again.
    The one place that picks: the stream's cursor and the weights come from the same checkpoint.
    """
    found = None
    for step in reversed(steps_saved(run_folder)):
        folder = folder_of(run_folder, step)
        problem = storage.mismatch(folder)
        if problem is None:
            return folder
        if problem == f"{storage.MANIFEST} is missing":  # never published: it was being written or deleted
            continue
        found = found or f"{folder}: {problem}"
        report(f"checkpoint {folder} is damaged ({problem}); trying the one before it")
    if found:
        raise CheckpointError(
            f"no sound checkpoint is left ({found}); start again under another --name, or delete {storage.join(run_folder, 'checkpoints')}"
        )
    return None


def read_state(folder: str) -> State:
    """The state of a checkpoint."""
    fields: dict[str, Any] = storage.read_json(storage.join(folder, STATE))
    cursor = fields.pop("cursor")
    return State(cursor=Cursor(**cursor) if cursor else None, **fields)


def load(folder: str, module: nn.Module, optimizer: torch.optim.Optimizer | None, model: Model) -> State:
    """Put a checkpoint's weights, and its optimiser state where asked, into place and give its state.

    Raises CheckpointError when a tensor is missing, unexpected or of another shape.
    """
    try:
        module.load_state_dict(from_published(read_tensors(storage.join(folder, WEIGHTS)), model))
        if optimizer is not None:
            load_optimizer(optimizer, module, read_tensors(storage.join(folder, OPTIMIZER)))
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    return read_state(folder)


def read_tensors(location: str) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file anywhere. Raises CheckpointError when it cannot be read."""
    system, path = storage.filesystem(location)
    try:
        if isinstance(system, fs.LocalFileSystem):
            return load_file(path)
        with scratch_folder("load") as temporary:
            local = f"{temporary}/tensors"
            storage.with_retries(
                lambda: fs.copy_files(
                    path, local, source_filesystem=system, destination_filesystem=fs.LocalFileSystem()
                )
            )
            return load_file(local)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error
