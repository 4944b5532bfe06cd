"""Join or start Ray, and size the workers to the cluster."""

import atexit
import ipaddress
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import ray

from pipeline.command_line.environment import submission_id
from pipeline.command_line.stopping import interrupt_on_sigterm
from pipeline.config.placement import Placement
from pipeline.config.workers import WorkerRange
from pipeline.errors import ClusterLost, ConfigError
from pipeline.files import storage
from pipeline.files.local_files import SCRATCH
from pipeline.files.locations import is_url
from pipeline.on_ray import ray_private
from pipeline.on_ray.heads import is_listening, local_head_address
from pipeline.on_ray.local_ray import make_token, ray_folders, start_remedy
from pipeline.reporting import Report, print_line

NAMESPACE = "bertstream"
SHARES = tuple(sixteenths / 16 for sixteenths in range(16, 0, -1))
"""CPUs per worker to try, in this order, if placement.worker_cpus is not set.

All are sixteenths, because sums of sixteenths have no rounding error.
"""
STAGES = 2
"""Number of a stream's Ray Data operators that request CPUs.

Ray rounds the request of each operator up to whole CPUs, so a stream may request up to STAGES more CPUs than it needs.
"""
HEAD_SECONDS = 60.0
"""Ray's default: seconds without contact to the head after which Ray ends a process."""
HEAD_SHARE, LOOKS = 0.75, 10
"""The process ends itself earlier than Ray would end it: after HEAD_SHARE of Ray's seconds. In this time, the process
checks LOOKS times whether the head answers.
"""
AGAIN = "start the same command again, and it continues from what is already done"
PRIVATE = f"/{SCRATCH}ray-"
"""Part of all paths of a Ray instance that `start` has started for one process.

The instance's folder is deleted when the process ends.
"""


@dataclass(frozen=True, kw_only=True)
class WorkerResources:
    """Resources that each training worker requests from Ray."""

    cpus: float
    gpu: bool
    custom: str | None = None
    """Custom resource of which each worker takes 1, in addition to CPU and GPU; None: no custom resource."""

    def to_ray(self) -> dict[str, float]:
        return {"CPU": self.cpus} | ({"GPU": 1} if self.gpu else {}) | ({self.custom: 1} if self.custom else {})


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Node type that a cluster's autoscaler may start."""

    most: float
    """Maximum number of nodes; infinite if there is no limit."""
    resources: Mapping[str, float]
    """Resources of one node, as Ray names them."""

    def holds(self, needs: Mapping[str, float]) -> float:
        """Return how many workers with these needs fit on all nodes of this type together."""
        on_one = min(self.resources.get(name, 0) // need for name, need in needs.items())
        return self.most * on_one if on_one else 0


def connect(address: str | None, report: Report = print_line) -> None:
    """Join a cluster, or start Ray on this machine if there is no cluster; a no-op if Ray is already initialised.

    The cluster's address is `address`, else the environment variable RAY_ADDRESS, else the address of a head on this
    machine. `report` gets a line that says which Ray it is, except in a Ray job, which runs in the Ray that it was
    submitted to. Raises ConfigError if an address does not answer or Ray does not start.
    """
    if ray.is_initialized():
        return
    target = address or os.environ.get("RAY_ADDRESS")
    name = "placement.address" if address else "RAY_ADDRESS"
    remedy = "start a head at this address (ray start --head), or leave the address out to run on this machine alone"
    if target and not is_listening(target):
        raise ConfigError(f"{name} ({target}) does not answer; {remedy}")
    target = target or local_head_address()
    try:
        if target in (None, "local"):
            start(log_to_driver=False, logging_level="ERROR")
        else:
            with ray_private.listening_on_loopback() if listens_only_on_loopback(target) else nullcontext():
                ray.init(address=target, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except ConfigError:
        raise
    except Exception as error:  # Ray raises a plain Exception if its start takes too long
        if target in (None, "local"):
            raise ConfigError(
                f"Ray did not start on this machine: {storage.first_line(error)}; {start_remedy()}"
            ) from error
        raise ConfigError(f"{name} ({target}) cannot be joined: {storage.first_line(error)}; {remedy}") from error
    if not str(target).startswith("ray://"):
        watch_head()
    # After ray.init, to replace Ray's handler, which aborts the process three seconds after SIGTERM.
    interrupt_on_sigterm()
    if submission_id() is None:
        which = "started for this command alone" if target in (None, "local") else f"joined at {target}"
        counts = ray.cluster_resources()
        report(f"Ray: {which}, {counts.get('CPU', 0):g} CPUs, {counts.get('GPU', 0):g} GPUs")


@contextmanager
def ray_errors_as_cluster_lost() -> Generator[None]:
    """Raise ClusterLost if Ray or one of its processes dies. Errors of the code inside tasks pass unchanged."""
    try:
        yield
    except (ray.exceptions.RayError, ConnectionError) as error:
        cause: BaseException = error
        while isinstance(cause, ray.exceptions.RayTaskError) and isinstance(cause.cause, BaseException):
            cause = cause.cause
        if not isinstance(cause, ray.exceptions.RayError | ConnectionError) or isinstance(
            cause, ray.exceptions.RayTaskError
        ):
            raise
        raise ClusterLost(f"Ray, or one of its processes, has died ({storage.first_line(cause)}); {AGAIN}") from error


def watch_head() -> None:
    """Start a thread that ends the process with a one-line error if Ray's head stays unreachable.

    Ray itself would end the process a little later, without a message.
    """
    node = ray_private.connection()
    address = node.gcs_address
    timeout = os.environ.get("RAY_gcs_rpc_server_reconnect_timeout_s", HEAD_SECONDS)  # noqa: SIM112  (Ray's name)
    patience = HEAD_SHARE * float(timeout)

    def end() -> None:
        if is_unreachable_for(address, patience, lambda: ray_private.connection() is node):
            print(
                f"error: Ray's head at {address} has not answered for {patience:.0f} s; {AGAIN}",
                file=sys.stderr,
                flush=True,
            )
            time.sleep(0.1)  # lines_left_out may relay standard error in a thread, which os._exit ends
            os._exit(ClusterLost.exit_code)  # not sys.exit, because the main thread is blocked in Ray

    threading.Thread(target=end, name="watch-head", daemon=True).start()


def is_unreachable_for(address: str, patience: float, wanted: Callable[[], bool]) -> bool:
    """Return True once nothing has listened at HOST:PORT for `patience` seconds, or False once `wanted()` is False."""
    last_answer = time.monotonic()
    while wanted():
        if is_listening(address):
            last_answer = time.monotonic()
        elif time.monotonic() - last_answer >= patience:
            return True
        time.sleep(patience / LOOKS)
    return False


def start(**options: Any) -> None:
    """Start Ray for this process alone: on 127.0.0.1, in a private folder that is deleted when the process ends."""
    make_token()
    folders = ExitStack()
    folder, spilled = ray_folders(folders)

    def end() -> None:
        ray.shutdown()
        with suppress(OSError):  # a Ray process may still write to a folder; the next start deletes that folder
            folders.close()

    atexit.register(end)
    with ray_private.listening_on_loopback(), ray_private.light_worker_setup():
        folder_options = {"_temp_dir": str(folder), "object_spilling_directory": str(spilled)}
        ray.init(address="local", namespace=NAMESPACE, include_dashboard=False, **folder_options, **options)


def keep_logs(folder: str) -> str:
    """Return where Ray's logs are, for a message. Logs that are deleted when Ray ends are copied to `folder` first."""
    if not is_private() or is_url(folder):
        return "in Ray's logs"
    logs = ray_private.connection().get_logs_dir_path()
    with suppress(shutil.Error):  # files may change during the copy
        shutil.copytree(logs, folder, symlinks=True, dirs_exist_ok=True)
    return f"below {folder}"


def is_private() -> bool:
    """Return whether this process has joined a Ray that `start` has started for it alone."""
    return PRIVATE in ray_private.connection().get_logs_dir_path()


def listens_only_on_loopback(address: str) -> bool:
    """Return whether a head listens on a loopback address, but not on the node address that Ray would use."""
    host, _, port = address.rpartition(":")
    return is_loopback(host) and not is_listening(f"{ray.util.get_node_ip_address()}:{port}")


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def count_nodes() -> int:
    """Return the number of live nodes; nodes with the same address count once."""
    return len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]})


def live_nodes() -> list[dict[str, float]]:
    """Return the resources of each live node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def worker_resources(placement: Placement, workers: WorkerRange) -> WorkerResources:
    """Return the resources that each worker requests in this cluster. See `fit_workers`, also for the errors."""
    return fit_workers(placement, workers, live_nodes(), node_groups(placement))


def node_groups(placement: Placement) -> list[NodeGroup]:
    """Return the node types that the autoscaler may start.

    The list is empty without placement.autoscaled, without an autoscaler, and before the autoscaler has reported.
    """
    config = ray_private.autoscaler_config() if placement.autoscaled else None
    groups = config.node_group_configs if config else ()
    return [
        NodeGroup(most=math.inf if group.max_count < 0 else group.max_count, resources=dict(group.resources))
        for group in groups
    ]


def fit_workers(
    placement: Placement, workers: WorkerRange, nodes: Sequence[Mapping[str, float]], groups: Sequence[NodeGroup] = ()
) -> WorkerResources:
    """Return the resources that each worker requests. `nodes`: resources of each live node.

    One whole CPU of one node is left for the data stream, because the stream would otherwise wait for ever without a
    message. Raises ConfigError if the minimum number of workers does not fit, or if the maximum number might leave no
    CPU for the data stream. The message states what the workers need and what the cluster has.

    In an autoscaled cluster, the node types `groups` count instead of the live nodes, and the maximum number of workers
    must fit (see `_fit_autoscaled_workers`).
    """
    name, least = placement.worker_resource, workers.least
    if placement.autoscaled:
        return _fit_autoscaled_workers(placement, workers, groups)
    cpus, gpus, units = (sum(node.get(resource, 0) for node in nodes) for resource in ("CPU", "GPU", str(name)))
    if placement.device == "cuda" and gpus < least:
        raise ConfigError(
            f"workers ({workers}) with placement.device cuda need one GPU each, but the cluster has {gpus:g} "
            "GPUs; use fewer workers, placement.device cpu, or placement.autoscaled"
        )
    if name is not None and units < least:
        raise ConfigError(
            f"workers ({workers}) need one unit of placement.worker_resource ({name}) each, but the cluster has "
            f"{units:g} units; start nodes with --resources '{{\"{name}\": 1}}', or use placement.autoscaled"
        )
    gpu = placement.device != "cpu" and gpus >= least
    bounds = [resource for resource in ("GPU" if gpu else None, name) if resource]
    shares = [placement.worker_cpus] if placement.worker_cpus else SHARES
    share = next((share for share in shares if _leaves_one_cpu(nodes, bounds, workers, share)), None)
    if share is None:
        raise ConfigError(
            f"workers ({workers}) do not fit: the cluster has {cpus:g} CPUs, and one whole CPU must be left for the "
            f"data stream; {_remedy(nodes, bounds, workers, shares[-1])}"
        )
    return WorkerResources(cpus=share, gpu=gpu, custom=name)


def _leaves_one_cpu(
    nodes: Sequence[Mapping[str, float]], bounds: Sequence[str], workers: WorkerRange, share: float
) -> bool:
    """Return whether some node keeps a whole CPU for any placement of the workers, which have `share` CPUs each.

    The units of each resource in `bounds` limit the number of workers on a node. If an elastic group loses nodes, its
    workers may fill all other nodes. So for an elastic group, one node must keep a CPU even with its maximum number of
    workers.
    """
    needed = 0
    for node in nodes:
        cpus, held = node.get("CPU", 0), min([workers.most, *(node.get(resource, 0) for resource in bounds)])
        if cpus - held * share >= 1:
            return True
        if cpus >= 1:
            needed += int((cpus - 1) / share) + 1
    return not workers.elastic and workers.most < needed


def _remedy(nodes: Sequence[Mapping[str, float]], bounds: Sequence[str], workers: WorkerRange, share: float) -> str:
    """Return advice for the message that workers of `share` CPUs each leave no CPU for the data stream."""
    most = max(
        (
            most
            for most in range(1, workers.most)
            if _leaves_one_cpu(nodes, bounds, WorkerRange(least=min(most, workers.least), most=most), share)
        ),
        default=0,
    )
    if most == 0:
        return (
            "give Ray 2 CPUs or more"
            if share == SHARES[-1]
            else f"give Ray more CPUs, or lower placement.worker_cpus ({share:g})"
        )
    other = ", or restrict training to some nodes with placement.worker_resource"
    return f"use at most {most} worker{'s' * (most > 1)}{other if workers.elastic and not bounds else ''}"


def _fit_autoscaled_workers(placement: Placement, workers: WorkerRange, groups: Sequence[NodeGroup]) -> WorkerResources:
    """Return the resources that each worker requests in a cluster that starts nodes on demand.

    Raises ConfigError for placement.device auto. Also raises ConfigError if the maximum number of workers does not fit
    on all nodes that may be started, because Ray's autoscaler starts no node for a request that it can only satisfy in
    part.
    """
    if placement.device == "auto":
        raise ConfigError(
            "placement.autoscaled needs placement.device cuda or cpu: "
            "auto cannot count the GPUs of nodes that have not started"
        )
    resources = WorkerResources(
        cpus=placement.worker_cpus or 1.0, gpu=placement.device == "cuda", custom=placement.worker_resource
    )
    needs = resources.to_ray()
    if groups and (room := sum(group.holds(needs) for group in groups)) < workers.most:
        each = ", ".join(f"{need:g} {name}" for name, need in needs.items())
        raise ConfigError(
            f"workers ({workers}) do not fit: all nodes that the cluster may start have room for {room:g} workers of "
            f"{each}; use fewer workers, or raise max_workers (maxReplicas on Kubernetes) of a node type"
        )
    return resources


def stream_cpus(resources: WorkerResources, workers: WorkerRange, groups: Sequence[NodeGroup]) -> float:
    """Return the number of CPUs that a stream may request; infinite if `groups` is empty.

    If some node types have no room for a worker, the stream may request the CPUs of these node types. Otherwise, the
    stream may request the CPUs that the workers leave free. STAGES CPUs are subtracted, but the result is at least 1.

    A limit is needed because Ray combines the requests of the stream and of an elastic group, and Ray's autoscaler
    starts no node for a combined request that it can only satisfy in part.
    """
    if not groups:
        return math.inf
    with_cpus = [group for group in groups if group.holds({"CPU": 1})]
    without_workers = [group for group in with_cpus if not group.holds(resources.to_ray())]
    cpus = sum(group.most * group.resources["CPU"] for group in without_workers or with_cpus)
    return max(1.0, cpus - (0 if without_workers else workers.most * resources.cpus) - STAGES)
