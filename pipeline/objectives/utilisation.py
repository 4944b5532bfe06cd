"""Model FLOPs utilisation of a run."""

from collections.abc import Mapping

import torch

from pipeline.config.jobs import Pretrain
from pipeline.model.flops import TokenCounts, peak_flops, utilisation
from pipeline.objectives.table import flops_per_token


def device_peak(device: torch.device, precision: str) -> float | None:
    """Return the dense peak of a GPU in operations per second for a number format; None if unknown, or for a CPU."""
    return peak_flops(torch.cuda.get_device_name(device), precision) if device.type == "cuda" else None


def utilisation_percent(
    config: Pretrain, vocabulary_size: int, total: Mapping[str, float], seconds: float, peak: float
) -> float:
    """Return model FLOPs utilisation in percent.

    `total` holds three totals for the `seconds` of training: `tokens`, `squares` (the sum of squared sequence lengths)
    and `masked` (the number of masked positions). `peak` is the sum over all devices, in operations per second.
    """
    counted = TokenCounts(tokens=int(total["tokens"]), squares=int(total["squares"]), masked=int(total["masked"]))
    return 100 * utilisation(
        flops_per_token(config.objective, config.model, vocabulary_size, counted), counted.tokens / seconds, peak
    )
