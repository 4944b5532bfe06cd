"""State of a long fine-tuning trial on disk, from which a killed trial continues.

TRIAL/checkpoints/step-00000500/
    model.safetensors optimizer.safetensors     tensors under the names of the module's parameters
    best.safetensors                            weights of the best epoch, with early stopping only
    state.json                                  curve, scores and counts so far
    manifest.json                               size and SHA-256 of every file, written last
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from pipeline.files import storage
from pipeline.files.local_files import scratch_folder
from pipeline.model.host_copies import on_host
from pipeline.optim.build import load_optimizer, optimizer_tensors
from pipeline.saved.checkpoints import OPTIMIZER, STATE, WEIGHTS, folder_of, steps_saved
from pipeline.saved.tensors import read_tensors, write_tensors

BEST = "best.safetensors"
SECONDS = 300.0
"""Minimum seconds between two checkpoints of a trial; shorter trials write none."""
SHARE = 0.05
"""Approximate maximum share of a trial's time that is spent on checkpoints."""
Scores = dict[str, dict[str, float]]
"""Split -> metric -> value."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """Best epoch so far."""

    value: float
    """Value of the selection metric; a higher value means a better model."""
    epoch: int
    """Number of the epoch, from 1."""
    weights: Mapping[str, Tensor]
    """Weights of that epoch; empty without early stopping, because then the module keeps its last weights."""
    answers: Any
    """The model's answers to the first development split after that epoch; None after a restart."""


@dataclass(kw_only=True)
class TrialState:
    """Progress of a trial."""

    curve: list[tuple[int, float]] = field(default_factory=list)
    """Points (step, mean training loss since the previous point)."""
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Training time so far, without evaluation."""
    total: float = 0.0
    """Sum of the loss since the last point of the curve."""
    count: float = 0.0
    """Divisor of `total`: `total` / `count` is the mean loss."""
    epochs: list[Scores] = field(default_factory=list)
    """Scores after each finished epoch."""
    best: Best | None = None


class TrialCheckpoints:
    """Checkpoints of one trial in its folder, written at intervals."""

    def __init__(self, folder: str, seconds: float = SECONDS, share: float = SHARE) -> None:
        self.folder, self.seconds, self.share = folder, seconds, share
        self.saved, self.took = time.monotonic(), 0.0
        """`saved`: the time when the last save ended; before the first save, the time when this object was created.

        `took`: the seconds that the last save took; 0 before the first save.
        """

    def due(self) -> bool:
        """Return whether enough time has passed since the last checkpoint to write another."""
        return time.monotonic() - self.saved >= max(self.seconds, self.took / self.share)

    def save(self, state: TrialState, module: nn.Module, optimizer: Optimizer) -> None:
        """Publish the state and delete older checkpoints."""
        started, target = time.monotonic(), folder_of(self.folder, state.step)
        written = {name: value for name, value in vars(state).items() if name != "best"}
        written["best"] = {"value": state.best.value, "epoch": state.best.epoch} if state.best else None
        with scratch_folder("trial") as folder:
            write_tensors(folder / WEIGHTS, on_host(module.state_dict()))
            write_tensors(folder / OPTIMIZER, optimizer_tensors(optimizer, module))
            if state.best and state.best.weights:
                write_tensors(folder / BEST, on_host(state.best.weights))
            (folder / STATE).write_text(json.dumps(written) + "\n")
            storage.publish(folder, target, {"step": state.step})
        for step in steps_saved(self.folder):
            if step != state.step:
                storage.delete_folder(folder_of(self.folder, step))
        self.saved = time.monotonic()
        self.took = self.saved - started

    def load(self, module: nn.Module, optimizer: Optimizer) -> TrialState:
        """Load the newest intact checkpoint and return its state; return an empty state if no checkpoint is intact."""
        step = resume_step(self.folder)
        if step is None:
            return TrialState()
        folder = folder_of(self.folder, step)
        module.load_state_dict(read_tensors(storage.join(folder, WEIGHTS)))
        load_optimizer(optimizer, module, read_tensors(storage.join(folder, OPTIMIZER)), complete=False)
        written = storage.read_json(storage.join(folder, STATE))
        if best := written.pop("best"):
            path = storage.join(folder, BEST)
            best = Best(**best, weights=read_tensors(path) if storage.exists(path) else {}, answers=None)
        written["curve"] = [(step, loss) for step, loss in written["curve"]]
        return TrialState(**written, best=best)

    def delete(self) -> None:
        """Delete all checkpoints, once the trial's result is written."""
        delete_checkpoints(self.folder)


def resume_step(folder: str) -> int | None:
    """Return the step of the newest intact checkpoint in a trial's folder; None if no checkpoint is intact."""
    return next(
        (step for step in reversed(steps_saved(folder)) if storage.damage(folder_of(folder, step)) is None), None
    )


def delete_checkpoints(folder: str) -> None:
    """Delete all checkpoints in a trial's folder."""
    for step in steps_saved(folder):
        storage.delete_folder(folder_of(folder, step))
    storage.delete_folder(storage.join(folder, "checkpoints"))
