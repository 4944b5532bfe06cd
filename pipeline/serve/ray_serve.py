"""Run a model under Ray Serve: join or start Ray, start the replicas, and wait until they answer."""

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager

import ray
from ray import serve as ray_serve

from pipeline.config.serve import Serve
from pipeline.errors import ConfigError
from pipeline.on_ray import cluster
from pipeline.reporting import Report, duration
from pipeline.serve.address import bound
from pipeline.serve.deployments import MODEL, application
from pipeline.serve.model import describe_on_cpu
from pipeline.serve.uses import ServedDescription, processes

NAME = "bertstream"
"""Name of the application in Ray Serve."""
RUNNING, FAILED = "RUNNING", "DEPLOY_FAILED"
"""States of an application in Ray Serve, when all its replicas are ready, and when some cannot start."""
POLLED = 0.2
"""Seconds between two looks at the state."""
TOLD = 10.0
"""Seconds of waiting for replicas after which a line says how many are ready."""
CONTROLLER = "SERVE_CONTROLLER_ACTOR"
"""Name of Ray Serve's controller, an actor that a cluster has at most once."""


@contextmanager
def replicas_ready(config: Serve, token: str | None, report: Report) -> Generator[ServedDescription]:
    """Serve the model while the block runs; yield its description as soon as all replicas answer.

    Raises ConfigError if the address is taken, if the cluster is too small, or if the replicas are not ready in time.
    """
    with cluster.ray_errors_as_cluster_lost():
        with bound(config):  # Ray Serve would retry without a message
            pass
        report(f"loading the model {config.checkpoint}, to check it")
        described = describe_on_cpu(config)
        _start_ray_serve(config, report)
        try:
            _run(config, described, token, report)
            yield described
        finally:
            ray_serve.delete(NAME)
            if not cluster.is_private():  # a private Ray ends with this process
                ray_serve.shutdown()


def _start_ray_serve(config: Serve, report: Report) -> None:
    """Join or start Ray, and start Ray Serve in it. Raises ConfigError as `_require_cluster` does."""
    report("starting Ray, or joining a cluster")
    cluster.connect(config.placement.address)
    _require_cluster(config)
    report("starting Ray Serve")
    logging.getLogger("ray.serve").setLevel(logging.ERROR)  # our own lines say where the model is served
    ray_serve.start(http_options={"host": config.host, "port": config.port}, proxy_location="HeadOnly")


def _run(config: Serve, described: ServedDescription, token: str | None, report: Report) -> None:
    """Start the replicas and wait until they answer; report whenever more of them are ready, and after TOLD seconds.

    Raises ConfigError if they do not start, or not within start_timeout.
    """
    begun = told = time.monotonic()
    report(f"starting {processes(config.replicas)}{', which write ONNX graphs' if config.onnx else ''}")
    target = ray_serve.RunTarget(application(config, described, token), name=NAME, route_prefix="/")
    ray_serve.run_many([target], wait_for_applications_running=False)  # with True, it would wait without a limit
    known = 0
    while (started := ray_serve.status().applications[NAME]).status != RUNNING:
        if started.status == FAILED:
            reason = started.message.partition("\n")[0]
            raise ConfigError(f"checkpoint ({config.checkpoint}) cannot be served: {reason}; Ray's logs say why")
        now, ready = time.monotonic(), _ready()
        if now > begun + config.start_timeout:
            raise ConfigError(_late(config))
        if ready != known or now > told + TOLD:
            told, known = now, ready
            report(f"{ready} of {processes(config.replicas)} ready after {duration(now - begun)}")
        time.sleep(POLLED)


def _ready() -> int:
    """Return how many replicas have loaded the model."""
    deployments = ray_serve.status().applications[NAME].deployments
    return deployments[MODEL].replica_states.get("RUNNING", 0) if MODEL in deployments else 0


def _late(config: Serve) -> str:
    """Say what the start has waited for."""
    whole, free = ray.cluster_resources(), ray.available_resources()
    asked = {"CPU": config.cpus_of_replica} | ({"GPU": config.gpus} if config.gpus else {})
    each = " and ".join(f"{count:g} {name}s" for name, count in asked.items())
    has = " and ".join(f"{whole.get(name, 0):g} {name}s, {free.get(name, 0):g} of them free" for name in asked)
    return (
        f"{_ready()} of {config.replicas} replicas are ready after {config.start_timeout:g} seconds (start_timeout): "
        f"each asks for {each}, and the cluster has {has}; lower replicas, cpus or gpus, or raise start_timeout"
    )


def _require_cluster(config: Serve) -> None:
    """Raise ConfigError if the cluster runs Ray Serve already, or if the replicas do not fit on its nodes.

    Ray Serve has one address for all, and may be somebody else's. Without room, it would wait without a message.
    """
    if any(actor["name"] == CONTROLLER for actor in ray.util.list_named_actors(all_namespaces=True)):
        raise ConfigError(
            "this Ray cluster runs Ray Serve already: stop that first (serve shutdown, or Ctrl-C where it was "
            "started), or set placement.address to local, to run on this machine alone"
        )
    if config.placement.autoscaled:
        return
    needs = {"CPU": config.cpus_of_replica} | ({"GPU": config.gpus} if config.gpus else {})
    room = sum(int(min(node.get(name, 0.0) // need for name, need in needs.items())) for node in cluster.live_nodes())
    if room < config.replicas:
        asked = " and ".join(f"{need:g} {name}s" for name, need in needs.items())
        raise ConfigError(
            f"replicas ({config.replicas}) of {asked} each do not fit, because the cluster has room for {room}: lower "
            "replicas, cpus or gpus"
        )
