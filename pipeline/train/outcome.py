"""Outcome of the training loop: the steps, tokens, time, memory and utilisation of a run."""

from typing import Any

from pipeline.config.phases import Phase
from pipeline.objectives.utilisation import utilisation_percent
from pipeline.train.checkpoint import State
from pipeline.train.hardware import chosen_precision, peak_memory_bytes
from pipeline.train.meter import percentile_milliseconds
from pipeline.train.work import Work


def outcome(work: Work, state: State, phase: Phase) -> dict[str, Any]:
    """Return the entries of a run's summary that the training loop measured; `phase` is the last phase."""
    return {
        "steps": state.step,
        "tokens": state.tokens,
        "epochs": state.cursor.epoch + 1 if state.cursor else 0,
        "workers": work.world,
        "device": work.device.type,
        "precision": chosen_precision(work.config.placement, work.device),
        "tokens_per_second": state.tokens / max(state.seconds, 1e-9),
        "data_wait_percent": 100 * state.wait_seconds / max(state.seconds, 1e-9),
        "training_seconds": state.seconds,
        "maximum_length": phase.sampling.maximum_length,
        "step_milliseconds_95th": percentile_milliseconds(state.step_times, 0.95),
        "peak_memory_gigabytes": peak_memory_bytes(work.device) / 1e9,
        "model_flops_utilisation_percent": _overall_utilisation(work, state),
        "heldout_before": state.heldout_before,
        "blimp": state.blimp if work.blimp else {},
    }


def _overall_utilisation(work: Work, state: State) -> float | None:
    """Return model FLOPs utilisation over the whole run in percent; None if the device's peak is unknown."""
    if work.peak_flops is None:
        return None
    return utilisation_percent(
        work.config, work.vocabulary.size, vars(state), max(state.seconds, 1e-9), work.world * work.peak_flops
    )
