"""GPUs of a cluster, before anything starts on them: how many a process takes, and whether torch can use them."""

import warnings
from collections.abc import Mapping

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline import storage
from pipeline.errors import ConfigError

PROBE_SECONDS = 45.0
"""Seconds to wait for answers: a node whose GPUs are all busy gives none, and its GPUs evidently work."""
LITTLE = 0.0001
"""Fraction of a GPU to request: the least that Ray assigns."""
MOST_NAMED = 3
"""Nodes that an error names."""


def gpus_of_process(setting: str, asked: float | None, device: str, there: float) -> float:
    """Return the GPUs of one process: as asked, else one, or the cluster's share of one, where `there` are any.

    `setting` names what was asked. Raises ConfigError where the cluster has fewer, or none for device cuda.
    """
    there = there if device != "cpu" else 0.0
    gpus = min(1.0, there) if asked is None else asked
    if gpus > there:
        raise ConfigError(
            f"{setting} ({gpus:g}) is more than there is: the cluster has {there:g} GPUs; ask for at most that, or "
            "for 0"
        )
    if device == "cuda" and not gpus:
        raise ConfigError("placement.device cuda needs GPUs, and the cluster has none")
    return gpus


def require_usable_gpus(resource: str | None = None) -> None:
    """Raise ConfigError where torch cannot use the GPUs of a node; with `resource`, check only nodes that have it."""
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
    refuse({asked[reference]: _answer(reference) for reference in done}, len(nodes))


def _answer(reference: ray.ObjectRef) -> str | None:
    """Return a node's answer; None where the node was lost, which is no fault of its GPUs."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError:
        return None


def refuse(problems: Mapping[str, str | None], nodes: int) -> None:
    """Raise ConfigError where a node, by its address, has a problem; `nodes` is the number checked."""
    bad = {address: problem for address, problem in problems.items() if problem}
    if bad:
        first = "; ".join(f"{address}: {problem}" for address, problem in list(bad.items())[:MOST_NAMED])
        raise ConfigError(
            f"torch cannot use the GPUs of {len(bad)} of {nodes} nodes that have some ({first}); "
            "mend that, leave those nodes out, or set placement.device cpu"
        )


def gpu_problem() -> str | None:
    """Describe why torch cannot compute on this process's GPU; None where it can."""
    if torch.version.cuda is None and torch.version.hip is None:
        kind = "for Intel GPUs, which are not used here" if torch.version.xpu else "without CUDA"
        return f"torch {torch.__version__} there is a build {kind}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # says of an old driver what the error says
            torch.ones(1, device="cuda").sum().item()
    except Exception as error:  # driver, build or chip: any of them explains it
        return f"torch {torch.__version__} there: {storage.first_line(error)}"
    return None
