"""Choose the precision of a grid's trials from the nodes that run them.

A trial's name depends on its precision. All trials use one precision, so that a trial has the same name on every node.
Each node reports the precision that it would choose, because the driver's machine may have other hardware.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pipeline.config.finetune import Finetune
from pipeline.config.placement import ModelPlacement
from pipeline.finetune.trials import NARROW, precision_of
from pipeline.on_ray import cluster
from pipeline.reporting import Report
from pipeline.train.hardware import device_of

LITTLE = 0.0001
"""The smallest GPU share that Ray grants: enough to see the GPU."""


def with_precision(config: Finetune, width: int, asked: Mapping[str, float], report: Report) -> Finetune:
    """Return the config with one precision for all trials, and report if the nodes would choose different ones.

    A precision other than `auto` is kept. `asked`: CPUs and GPUs per trial.
    """
    if config.placement.precision != "auto":
        return config
    device = device_of(config.placement, config.trials.gpus)
    if on_this_machine() and (device.type == "cuda" or not asked.get("GPU")):
        precisions = [precision_of(config.placement, width, device)]
    elif not asked.get("GPU") and width <= NARROW:
        precisions = [precision_of(config.placement, width, torch.device("cpu"))]
    else:
        precisions = node_precisions(config, width, asked)
    if asked.get("GPU") and set(precisions) == {"float32"}:
        report("placement.precision auto: float32, because the GPUs do not multiply in bfloat16")
    return with_common_precision(config, precisions, report)


def with_common_precision(config: Finetune, precisions: Sequence[str], report: Report) -> Finetune:
    """Return the config with the precision that all nodes chose, or with float32 if the nodes chose different ones."""
    chosen = precisions[0] if len(set(precisions)) == 1 else "float32"
    if len(set(precisions)) > 1:
        narrower = sum(precision != chosen for precision in precisions)
        report(
            f"placement.precision auto: {narrower} of {len(precisions)} machines would compute in bfloat16 "
            "and the others in float32, so all trials use float32"
        )
    return replace(config, placement=replace(config.placement, precision=chosen))


def on_this_machine() -> bool:
    """Return whether the cluster consists of the driver's machine only."""
    return cluster.count_nodes() == 1 and not ray.util.client.ray.is_connected()


def node_precisions(config: Finetune, width: int, asked: Mapping[str, float]) -> list[str]:
    """Return the precision that each node would choose. Nodes that are too small for a trial are left out.

    If all nodes are too small, wait until a large enough node joins, and return the precision of that node alone.
    """
    share = LITTLE if asked.get("GPU") else 0.0
    ask = ray.remote(max_retries=2)(this_node_precision)
    nodes = [
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and all(node["Resources"].get(name, 0) >= need for name, need in asked.items())
    ]
    if not nodes:
        return [
            ray.get(
                ask.options(num_cpus=asked["CPU"], num_gpus=asked.get("GPU", 0.0)).remote(
                    config.placement, width, bool(share)
                )
            )
        ]
    pins = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    return ray.get(
        [
            ask.options(num_cpus=0, num_gpus=share, scheduling_strategy=pin).remote(
                config.placement, width, bool(share)
            )
            for pin in pins
        ]
    )


def this_node_precision(placement: ModelPlacement, width: int, gpu: bool) -> str:
    """Return the precision that this node would choose for a trial; `gpu`: whether trials use a GPU."""
    return precision_of(placement, width, torch.device("cuda" if gpu and torch.cuda.is_available() else "cpu"))
