"""Joining or starting Ray, and what of it a run may use."""

import os
import socket
from dataclasses import dataclass

import ray

from pipeline import storage
from pipeline.config.training import Placement
from pipeline.errors import ConfigError

NAMESPACE = "bertstream"
SMALLEST_CPU_SHARE = 0.1
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class WorkerResources:
    """What each training worker asks Ray for."""

    cpus: float
    gpu: bool

    def to_ray(self) -> dict[str, float]:
        return {"CPU": self.cpus} | ({"GPU": 1} if self.gpu else {})


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


def worker_resources(placement: Placement, workers: int) -> WorkerResources:
    """CPUs and GPU of each worker in this cluster, with one whole CPU left for data."""
    total = ray.cluster_resources()
    return fit(placement, workers, cpus=total.get("CPU", 0), gpus=total.get("GPU", 0))


def fit(placement: Placement, workers: int, *, cpus: float, gpus: float) -> WorkerResources:
    """CPUs and GPU of each of `workers`, so that one whole CPU is left: without it the data stage waits for ever, without a word.

    Raises ConfigError naming both numbers when none fits.
    """
    if placement.device == "cuda" and gpus < workers:
        raise ConfigError(f"workers ({workers}) with placement.device cuda need as many GPUs, the cluster has {gpus:g}; use fewer workers or placement.device cpu")
    share = (cpus - 1) / workers
    if share < SMALLEST_CPU_SHARE:
        most = int((cpus - 1) / SMALLEST_CPU_SHARE)
        remedy = f"use at most {most} workers" if most >= 1 else "give Ray 2 CPUs or more"
        raise ConfigError(f"workers ({workers}) do not fit: the cluster has {cpus:g} CPUs, and one whole CPU must be left for data; {remedy}")
    whole = share if share < 1 else 1.0
    return WorkerResources(cpus=int(whole * 100) / 100, gpu=placement.device != "cpu" and gpus >= workers)
