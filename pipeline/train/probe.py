"""Whether torch can use the GPUs that Ray counts: asked of each node that has some, before anything starts on them."""

import warnings
from collections.abc import Mapping

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline import storage
from pipeline.errors import ConfigError

PROBE_SECONDS = 45.0
"""How long answers are waited for: a node whose GPUs are all taken gives none, and something computes on those."""
LITTLE = 0.0001
"""Of a GPU, the least that Ray gives: enough to see it."""
MOST_NAMED = 3
"""Nodes that an error names."""


def require_usable_gpus(resource: str | None = None) -> None:
    """Raise ConfigError where torch cannot use the GPUs of a node; `resource`: only nodes that have it are used."""
    wanted = ("GPU", resource) if resource else ("GPU",)
    nodes = [node for node in ray.nodes() if node["Alive"] and all(node["Resources"].get(name) for name in wanted)]
    ask = ray.remote(num_cpus=0, num_gpus=LITTLE, max_retries=1)(gpu_problem)
    pins = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    asked = {
        ask.options(scheduling_strategy=pin).remote(): node["NodeManagerAddress"]
        for pin, node in zip(pins, nodes, strict=True)
    }
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=PROBE_SECONDS) if asked else ([], [])
    for reference in late:
        ray.cancel(reference, force=True)
    refuse({asked[reference]: answer(reference) for reference in done}, len(nodes))


def answer(reference: ray.ObjectRef) -> str | None:
    """What a node said; None where it went meanwhile, which is no fault of its GPUs."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError:
        return None


def refuse(problems: Mapping[str, str | None], nodes: int) -> None:
    """Raise ConfigError where a node, by its address, has a problem; `nodes` is how many were asked."""
    bad = {address: problem for address, problem in problems.items() if problem}
    if bad:
        first = "; ".join(f"{address}: {problem}" for address, problem in list(bad.items())[:MOST_NAMED])
        raise ConfigError(
            f"torch cannot use the GPUs of {len(bad)} of {nodes} nodes that have some ({first}); "
            "mend that, leave those nodes out, or set placement.device cpu"
        )


def gpu_problem() -> str | None:
    """Why torch cannot compute on the GPU that this process was given; None where it can."""
    if torch.version.cuda is None and torch.version.hip is None:
        kind = "for Intel GPUs, which are not used here" if torch.version.xpu else "without CUDA"
        return f"torch {torch.__version__} there is a build {kind}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # says of an old driver what the error says
            torch.ones(1, device="cuda").sum().item()
    except Exception as error:  # of the driver, of the build, or of the chip: all of them are why
        return f"torch {torch.__version__} there: {storage.first_line(error)}"
    return None
