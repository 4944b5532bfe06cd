"""Choose the settings that are `auto` when a run starts, rows per slot and CUDA graphs. A run keeps what it has."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from pipeline.config.jobs import Pretrain, recording_problem, with_slot_rows
from pipeline.config.phases import Phase
from pipeline.errors import ConfigError, listed
from pipeline.model.attention import KERNEL_CAPABILITY, KERNEL_HEAD_WIDTHS, KERNEL_HEAD_WIDTHS_WITH_DROPOUT
from pipeline.model.gpu import gpu_of
from pipeline.train.overlap import overlap_problem
from pipeline.train.slot_memory import fitting_rows, step_bytes
from pipeline.train.slot_size import BUSY_TOKENS, slot_advice

GRAPHS = "placement.graphs"
"""Setting that run.json has if the run records CUDA graphs."""


@dataclass(frozen=True, kw_only=True)
class FreeMemory:
    """A GPU, and the memory that a run may use on it."""

    gpu: str
    """Name of the GPU."""
    bytes: int
    has_kernel: bool | None = None
    """Whether attention may have a kernel for rows without padding there (NVIDIA, Ampere or later); None: unknown."""


ASSUMED = FreeMemory(gpu="no GPU answered", bytes=16_000_000_000)
"""Memory that is assumed where no GPU answers, as in a cluster that starts its nodes later: that of a T4."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """Devices of a run's workers."""

    on_gpus: bool
    memory: FreeMemory = ASSUMED
    """The GPU with the least free memory."""
    gpus: float | None = None
    """Most GPUs of one machine; None if not known."""


def free_memory(device: torch.device) -> FreeMemory:
    """Return the name and the free memory of this process's GPU."""
    gpu = gpu_of(device)
    free, _ = torch.cuda.mem_get_info(device)
    return FreeMemory(gpu=gpu.name, bytes=free, has_kernel=gpu.reaches((KERNEL_CAPABILITY, 0)))


def _graphs_problem(config: Pretrain, where: Where) -> str | None:
    """Return what CUDA graphs need and the run does not have where it starts; None if nothing is known to be missing.

    Shapes of padded attention depend on the rows, so only attention without padding can be recorded.
    """
    if not where.on_gpus:
        return "a GPU, but its workers have none"
    if problem := recording_problem(config):
        return problem
    if config.placement.precision in ("float32", "tf32"):
        return f"bfloat16, but placement.precision is {config.placement.precision}"
    width = config.model.width // config.model.heads
    widths = KERNEL_HEAD_WIDTHS_WITH_DROPOUT if config.model.attention_dropout else KERNEL_HEAD_WIDTHS
    if width not in widths:
        return f"heads whose width is a multiple of 8 up to {max(widths)}, but it is {width}"
    return None if where.memory.has_kernel is not False else f"Ampere or a later GPU, not {where.memory.gpu}"


def _automatic_problem(config: Pretrain, where: Where) -> str | None:
    """Return what placement.graphs auto needs to be on, and the run does not have where it starts; None: it is on."""
    if problem := _graphs_problem(config, where):
        return problem
    if where.memory.has_kernel is None:
        return "a GPU that answers"
    return overlap_problem(config, where.memory.gpu, where.gpus)


def with_choices(
    config: Pretrain, recorded: Mapping[str, Any] | None, where: Where, *, goes_on: bool = True
) -> tuple[Pretrain, str | None]:
    """Return the settings without `auto` for rows per slot and CUDA graphs, and a line about the choice, if any.

    `recorded` is the identity in the run.json of a run that goes on, which keeps what it started with. `goes_on`:
    whether the run can go on with other workers. Raises ConfigError if it cannot keep what it started with, or if
    placement.graphs is on and a step cannot be recorded.
    """
    chosen = _with_graphs(_with_slots(config, recorded, where), recorded, where)
    return chosen, _line(config, recorded, where, goes_on=goes_on)


def _with_slots(config: Pretrain, recorded: Mapping[str, Any] | None, where: Where) -> Pretrain:
    """Return the settings with a number of rows per slot for each phase."""
    kept = {} if recorded is None else recorded
    rows = [
        _recorded_rows(kept, phase) or chosen_rows(config, phase, where) if phase.automatic else phase.batch.slot_rows
        for phase in config.slotted_phases
    ]
    most = min(phase.batch.fewest_slots for phase in with_slot_rows(replace(config, workers=1), rows).all_phases)
    if recorded is not None and config.worker_range.most > most:
        raise ConfigError(
            f"workers ({config.workers}) must be at most {most}, because run {config.name} keeps the slots that it "
            f"started with ({listed(dict.fromkeys(rows))} rows): use at most {most}, or start another --name"
        )
    return with_slot_rows(config, rows)


def _recorded_rows(recorded: Mapping[str, Any], phase: Phase) -> int | None:
    """Return the rows per slot of a phase in a recorded identity; None if it has none."""
    rows = recorded.get(phase.names.rows_per_slot)
    if not isinstance(rows, list):
        return rows
    later = dict(enumerate(rows, 2))  # the list begins with the second phase
    return later.get(phase.names.listed or 1)


def chosen_rows(config: Pretrain, phase: Phase, where: Where) -> int:
    """Return the rows per slot that `auto` means for a phase.

    On a GPU, a slot has BUSY_TOKENS of the longest rows, as far as memory allows and as a slot is left to each worker.
    """
    if not where.on_gpus or phase.batch.warmup_rows is not None:
        return phase.batch.slot_rows
    fitting = fitting_rows(config, phase, where.memory.bytes, where.memory.gpu)
    return phase.batch.dividing_rows(min(BUSY_TOKENS // phase.sampling.row_length, fitting), config.worker_range.most)


def _with_graphs(config: Pretrain, recorded: Mapping[str, Any] | None, where: Where) -> Pretrain:
    """Return the settings with placement.graphs on or off."""
    graphs, problem = config.placement.graphs, _graphs_problem(config, where)
    if graphs == "auto" and recorded is not None:
        graphs = recorded.get(GRAPHS, "off")
        if graphs == "on" and problem is not None:
            raise ConfigError(
                f"run {config.name} started with CUDA graphs, with which dropout draws other numbers, and they need "
                f"{problem}: change this, or go on without them with --placement.graphs off"
            )
    elif graphs == "auto":
        graphs = "on" if _automatic_problem(config, where) is None else "off"
    elif graphs == "on" and problem is not None:
        raise ConfigError(f"placement.graphs (on) needs {problem}: set placement.graphs auto or off")
    return replace(config, placement=replace(config.placement, graphs=graphs))


def without_dropped_graphs(config: Pretrain, recorded: Mapping[str, Any]) -> Pretrain:
    """Return the settings of a run with placement.graphs auto: off if its recorded identity has no graphs.

    Then its steps could not be recorded at its start, after the driver had chosen graphs.
    """
    return config if GRAPHS in recorded else without_graphs(config)


def without_graphs(config: Pretrain) -> Pretrain:
    """Return the settings with placement.graphs off."""
    return replace(config, placement=replace(config.placement, graphs="off"))


def _line(config: Pretrain, recorded: Mapping[str, Any] | None, where: Where, *, goes_on: bool) -> str | None:
    """Return a line about what was chosen for a new run on GPUs, and why; advice if slots were given that are small."""
    if recorded is not None or not where.on_gpus:
        return None
    automatic = config.placement.graphs == "auto" or any(phase.automatic for phase in config.all_phases)
    chosen = choice_text(config, where, goes_on=goes_on) if automatic else None
    return "; ".join(filter(None, (chosen, slot_advice(config)))) or None


def choice_text(config: Pretrain, where: Where, *, goes_on: bool = True) -> str:
    """Return the rows per slot and the graphs that `auto` means, and the reasons, as one line.

    If the run `goes_on`, the line also has the most workers with which it can.
    """
    parts = [
        f"{phase.names.rows_per_slot} auto: {_reason(config, phase, where)}"
        for phase in config.slotted_phases
        if phase.automatic
    ]
    chosen = _with_slots(config, None, where)
    if config.placement.graphs == "auto":
        problem = _automatic_problem(chosen, where)
        parts.append(f"placement.graphs auto: {'on' if problem is None else f'off, they need {problem}'}")
    if goes_on:
        most = min(phase.batch.fewest_slots for phase in chosen.all_phases)
        parts.append(f"this run can go on with up to {most} worker{'s' * (most > 1)}")
        parts.append("--workers 1..N leaves room for more")
    return "; ".join(parts)


def _reason(config: Pretrain, phase: Phase, where: Where) -> str:
    """Return the rows per slot that were chosen for a phase, and why."""
    rows, memory = chosen_rows(config, phase, where), where.memory
    tokens = rows * phase.sampling.row_length
    if phase.batch.warmup_rows is not None:
        return f"{rows} rows, because the rows per step warm up"
    needed = step_bytes(config, phase, rows, memory.gpu) / 1e9
    why = "as many as keep a GPU busy"
    if tokens < BUSY_TOKENS // 2:
        fits = fitting_rows(config, phase, memory.bytes, memory.gpu)
        most = phase.batch.fewest_rows // config.worker_range.most
        why = "what fits" if fits < most else "so that each worker has a slot"
    return (
        f"{rows} rows of {phase.sampling.row_length} tokens, {why} ({memory.gpu}: "
        f"{memory.bytes / 1e9:,.0f} GB {'assumed' if memory is ASSUMED else 'free'}, "
        f"about {needed:,.1f} needed)"
    )
