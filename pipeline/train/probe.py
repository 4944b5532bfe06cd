"""Check the GPUs of a cluster before work starts: how many each process gets, and whether torch can use them."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.config.placement import Placement
from pipeline.errors import ConfigError
from pipeline.files import storage
from pipeline.on_ray.cluster import live_nodes, node_groups
from pipeline.train.automatic import FreeMemory, free_memory

PROBE_SECONDS = 45.0
"""Seconds to wait for answers. A node whose GPUs are all in use does not answer; its GPUs are assumed to work."""
LITTLE = 0.0001
"""Fraction of a GPU that a probe requests: the smallest that Ray assigns."""
MOST_NAMED = 3
"""Maximum nodes that an error names."""


def gpus_of_process(setting: str, asked: float | None, device: str, there: float) -> float:
    """Return the number of GPUs of one process: `asked`; if `asked` is None, the smaller of 1 and `there`.

    `setting` is the name of the setting that holds `asked`. `there` is the number of GPUs in the cluster; for device
    cpu, `there` counts as 0. Raises ConfigError if the cluster has fewer GPUs than `asked`, or if the device is cuda
    and the process would have no GPU.
    """
    there = there if device != "cpu" else 0.0
    gpus = min(1.0, there) if asked is None else asked
    if gpus > there:
        raise ConfigError(
            f"{setting} ({gpus:g}) must be at most {there:g}, "
            f"{'because placement.device is cpu' if device == 'cpu' else 'the number of GPUs in the cluster'}: "
            f"lower {setting}, or leave it out"
        )
    if device == "cuda" and not gpus:
        raise ConfigError("placement.device cuda needs GPUs, and the cluster has none")
    return gpus


def gpus_of_machine(placement: Placement) -> float:
    """Return the most GPUs of a machine on which workers may run."""
    nodes = [group.resources for group in node_groups(placement)] if placement.autoscaled else live_nodes()
    allowed = [node for node in nodes if placement.worker_resource is None or node.get(placement.worker_resource)]
    return max((node.get("GPU", 0) for node in allowed), default=0)


@dataclass(frozen=True, kw_only=True)
class GpuReport:
    """Answer of a node about its GPU."""

    problem: str | None = None
    """Reason why torch cannot compute on it; None if it can."""
    memory: FreeMemory | None = None


def require_usable_gpus(resource: str | None = None) -> FreeMemory | None:
    """Return the GPU with the least free memory among one of each node; None if no node answered.

    A node answers for the GPU that Ray assigns to the probe. If `resource` is set, ask only nodes that have it. Raises
    ConfigError if torch cannot use the GPU of a node.
    """
    wanted = ("GPU", resource) if resource else ("GPU",)
    nodes = [node for node in ray.nodes() if node["Alive"] and all(node["Resources"].get(name) for name in wanted)]
    probe = ray.remote(num_cpus=0, num_gpus=LITTLE, max_retries=1)(gpu_report)
    pins = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
    addresses = {
        probe.options(scheduling_strategy=pin).remote(): node["NodeManagerAddress"]
        for pin, node in zip(pins, nodes, strict=True)
    }
    done, late = ray.wait(list(addresses), num_returns=len(addresses), timeout=PROBE_SECONDS) if addresses else ([], [])
    for reference in late:
        ray.cancel(reference, force=True)
    reports = {addresses[reference]: _answer(reference) for reference in done}
    refuse({address: report.problem for address, report in reports.items()}, len(nodes))
    return least_memory(report.memory for report in reports.values())


def least_memory(memories: Iterable[FreeMemory | None]) -> FreeMemory | None:
    """Return the least free memory of the GPUs that are known, with a kernel if all have one; None if none is known."""
    known = [memory for memory in memories if memory is not None]
    least = min(known, key=lambda memory: memory.bytes, default=None)
    return least and replace(least, has_kernel=all(memory.has_kernel for memory in known))


def _answer(reference: ray.ObjectRef) -> GpuReport:
    """Return what a node reports; an empty report if the node was lost, because its GPUs may not be the cause."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError:
        return GpuReport()


def refuse(problems: Mapping[str, str | None], nodes: int) -> None:
    """Raise ConfigError if a node has a problem.

    `problems` maps a node's address to its problem or None; `nodes` is the number of nodes with GPUs.
    """
    bad = {address: problem for address, problem in problems.items() if problem}
    if bad:
        first = "; ".join(f"{address}: {problem}" for address, problem in list(bad.items())[:MOST_NAMED])
        raise ConfigError(
            f"torch cannot use the GPUs of {len(bad)} of {nodes} nodes with GPUs ({first}); "
            "repair those nodes, leave them out, or set placement.device cpu"
        )


def gpu_report() -> GpuReport:
    """Return whether torch can compute on this process's GPU, and the GPU's name and free memory."""
    if problem := gpu_problem():
        return GpuReport(problem=problem)
    return GpuReport(memory=free_memory(torch.device("cuda")))


def gpu_problem() -> str | None:
    """Return why torch cannot compute on this process's GPU; None if it can."""
    if torch.version.cuda is None and torch.version.hip is None:
        kind = "for Intel GPUs, which are not used here" if torch.version.xpu else "without CUDA"
        return f"its torch {torch.__version__} is a build {kind}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of an old driver, and the error repeats it
            torch.ones(1, device="cuda").sum().item()
    except Exception as error:  # its text says whether the driver, the build or the GPU is the cause
        return f"its torch {torch.__version__} fails: {storage.first_line(error)}"
    return None
