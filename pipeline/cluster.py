"""Joining or starting Ray, and what of it a run may use."""

import os
import socket
from dataclasses import dataclass

import ray

from pipeline import storage
from pipeline.config.training import Placement
from pipeline.config.workers import WorkerRange
from pipeline.errors import ConfigError

NAMESPACE = "bertstream"
SMALLEST_CPU_SHARE = 0.1
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class WorkerResources:
    """What each training worker asks Ray for."""

    cpus: float
    gpu: bool
    custom: str | None = None
    """Resource of which a worker takes 1, beside those."""

    def to_ray(self) -> dict[str, float]:
        return {"CPU": self.cpus} | ({"GPU": 1} if self.gpu else {}) | ({self.custom: 1} if self.custom else {})


def connect(address: str | None) -> None:
    """Join the cluster at `address`, RAY_ADDRESS or on this machine, else start Ray in this process; a no-op inside one.

    Raises ConfigError when an address does not answer.
    """
    if ray.is_initialized():
        return
    given = address or os.environ.get("RAY_ADDRESS")
    name = "placement.address" if address else "RAY_ADDRESS" if given else "Ray"
    remedy = "start a head there (ray start --head), or leave the address out to run on this machine alone"
    if given and not answers(given):
        raise ConfigError(f"{name} ({given}) does not answer; {remedy}")
    options = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address=given, **options)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ConfigError(f"{name} ({given or 'on this machine'}) cannot be joined: {storage.first_line(error)}; {remedy}") from error


def answers(address: str) -> bool:
    """Whether something listens at HOST:PORT or ray://HOST:PORT; words as "auto" are left to Ray. Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return address in ("auto", "local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def nodes() -> int:
    """Machines in the cluster, by address."""
    return len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]})


def worker_resources(placement: Placement, workers: WorkerRange) -> WorkerResources:
    """What each worker asks for in this cluster, with one whole CPU left for data."""
    total = ray.cluster_resources()
    custom = total.get(placement.worker_resource, 0) if placement.worker_resource else None
    return fit(placement, workers, cpus=total.get("CPU", 0), gpus=total.get("GPU", 0), custom=custom)


def fit(placement: Placement, workers: WorkerRange, *, cpus: float, gpus: float, custom: float | None = None) -> WorkerResources:
    """What each of `workers` asks for in a cluster with so many CPUs, GPUs and, where one is asked for, units of the custom resource.

    One whole CPU is left: without it the data stage waits for ever, without a word. A cluster that scales itself is taken as it will be.
    Raises ConfigError naming both numbers when the least workers have no room, or the most could leave none for data.
    """
    least, name = workers.least, placement.worker_resource
    if placement.autoscaled:
        return autoscaled(placement)
    if placement.device == "cuda" and gpus < least:
        raise ConfigError(f"workers ({workers}) with placement.device cuda need as many GPUs, the cluster has {gpus:g}; use fewer workers, placement.device cpu, or placement.autoscaled")
    if custom is not None and custom < least:
        raise ConfigError(f"workers ({workers}) need as many units of placement.worker_resource ({name}), the cluster has {custom:g}; start nodes with --resources '{{\"{name}\": 1}}', or use placement.autoscaled")
    gpu = placement.device != "cpu" and gpus >= least
    most = int(min(workers.most, gpus if gpu and workers.elastic else workers.most, custom if custom is not None and workers.elastic else workers.most))
    share = placement.worker_cpus or min(1.0, int((cpus - 1) / most * 100) / 100)
    if share < SMALLEST_CPU_SHARE or share * most > cpus - 1 + 1e-9:
        raise ConfigError(f"workers ({workers}) do not fit: the cluster has {cpus:g} CPUs, and one whole CPU must be left for data; {remedy(placement, workers, cpus)}")
    return WorkerResources(cpus=share, gpu=gpu, custom=name)


def remedy(placement: Placement, workers: WorkerRange, cpus: float) -> str:
    """What to do where workers leave no CPU for data."""
    most = int((cpus - 1) / (placement.worker_cpus or SMALLEST_CPU_SHARE) + 1e-9)
    if most < 1:
        return "give Ray 2 CPUs or more" if placement.worker_cpus is None else f"give Ray more, or lower placement.worker_cpus ({placement.worker_cpus:g})"
    beside = ", or name the nodes that train with placement.worker_resource" if workers.elastic else ""
    return f"use at most {most} worker{'s' * (most > 1)}{beside}"


def autoscaled(placement: Placement) -> WorkerResources:
    """What each worker asks for in a cluster whose nodes come when they are asked for."""
    if placement.device == "auto":
        raise ConfigError("placement.autoscaled needs placement.device cuda or cpu: the nodes that would tell are not there yet")
    return WorkerResources(cpus=placement.worker_cpus or 1.0, gpu=placement.device == "cuda", custom=placement.worker_resource)
