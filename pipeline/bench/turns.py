"""Time functions in turns, so that noise of the machine affects all functions equally."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import torch

Name = TypeVar("Name")
WARM_UP = 2  # untimed calls of each function


def median_seconds(
    functions: Mapping[Name, Callable[[int], None]], device: torch.device, repetitions: int
) -> dict[Name, float]:
    """Return name -> median seconds per call.

    Each repetition calls every function once, with the number of the repetition (from 0) as the argument.
    """
    for number in range(WARM_UP):
        for function in functions.values():
            function(number)
    seconds: dict[Name, list[float]] = {name: [] for name in functions}
    for number in range(repetitions):
        for name, function in functions.items():
            synchronise(device)
            start = time.perf_counter()
            function(number)
            synchronise(device)
            seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(timings)) for name, timings in seconds.items()}


def synchronise(device: torch.device) -> None:
    """Wait until the device has done its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
