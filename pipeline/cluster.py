"""Joining or starting Ray, and what of it a run may use."""

import atexit
import ipaddress
import math
import os
import secrets
import shutil
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from pipeline import storage
from pipeline.config.training import Placement
from pipeline.config.workers import WorkerRange
from pipeline.errors import ClusterLost, ConfigError
from pipeline.local_files import scratch_folder
from pipeline.stopping import interrupt_on_sigterm

NAMESPACE = "bertstream"
SHARES = tuple(sixteenths / 16 for sixteenths in range(16, 0, -1))
"""CPUs that a worker may be given where none are asked for; sums of them are exact."""
STAGES = 2
"""Of a stream that ask for CPUs: Ray Data asks for whole ones for each, so for up to so many more than it needs."""
CONNECT_SECONDS = 5.0
HEAD_SECONDS, HEAD_SHARE, LOOKS = 60.0, 0.75, 10
"""After how long without a head Ray ends a process, the part of that after which this one ends itself, and how often it looks in that time."""
AGAIN = "start the same command again, and it continues with what is done"
LONGEST_TEMPORARY = 103 - len(
    "/bertstream-ray-01234567/files/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
)
"""Bytes of the name of a temporary folder that leave room for the paths of Ray's sockets, which systems limit."""


@dataclass(frozen=True, kw_only=True)
class WorkerResources:
    """What each training worker asks Ray for."""

    cpus: float
    gpu: bool
    custom: str | None = None
    """Resource of which a worker takes 1, beside those."""

    def to_ray(self) -> dict[str, float]:
        return {"CPU": self.cpus} | ({"GPU": 1} if self.gpu else {}) | ({self.custom: 1} if self.custom else {})


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes of one kind that a cluster's autoscaler may start."""

    most: float
    resources: Mapping[str, float]

    def holds(self, needs: Mapping[str, float]) -> float:
        """How many workers that need this all its nodes hold."""
        on_one = min(self.resources.get(name, 0) // need for name, need in needs.items())
        return self.most * on_one if on_one else 0


def connect(address: str | None) -> None:
    """Join the cluster at `address`, RAY_ADDRESS or on this machine, else start Ray in this process; a no-op inside one.

    Raises ConfigError when an address does not answer, and where Ray does not start.
    """
    if ray.is_initialized():
        return
    given = address or os.environ.get("RAY_ADDRESS")
    name = "placement.address" if address else "RAY_ADDRESS"
    remedy = "start a head there (ray start --head), or leave the address out to run on this machine alone"
    if given and not is_listening(given):
        raise ConfigError(f"{name} ({given}) does not answer; {remedy}")
    given = given or local_head_address()
    try:
        if given in (None, "local"):
            start(log_to_driver=False, logging_level="ERROR")
        else:
            with listening_on_loopback() if listens_only_on_loopback(given) else nullcontext():
                ray.init(address=given, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises bare ones where a start takes too long
        if given in (None, "local"):
            raise ConfigError(
                f"Ray did not start on this machine: {storage.first_line(error)}; "
                "the same command tries again, best when the machine has less to do"
            ) from error
        raise ConfigError(f"{name} ({given}) cannot be joined: {storage.first_line(error)}; {remedy}") from error
    if not str(given).startswith("ray://"):
        watch_head()
    interrupt_on_sigterm()  # after Ray has set its own handler, which aborts the process three seconds later


@contextmanager
def ray_errors_as_cluster_lost() -> Iterator[None]:
    """Raise ClusterLost for what Ray raises when it, or one of its processes, dies; errors of the code that it runs stay as they are."""
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
        raise ClusterLost(
            f"Ray, or a process of it that this needs, is gone ({storage.first_line(cause)}); {AGAIN}"
        ) from error


def watch_head() -> None:
    """End the process in one line where Ray's head is gone for long, from a thread: Ray itself would end it a little later, without one."""
    node = ray._private.worker._global_node  # another after another ray.init; Ray has no public name for a connection
    address = node.gcs_address
    patience = HEAD_SHARE * float(os.environ.get("RAY_gcs_rpc_server_reconnect_timeout_s", HEAD_SECONDS))

    def end() -> None:
        if is_unreachable_for(address, patience, lambda: ray._private.worker._global_node is node):
            print(
                f"error: Ray's head at {address} does not answer for {patience:.0f} s; {AGAIN}",
                file=sys.stderr,
                flush=True,
            )
            os._exit(ClusterLost.exit_code)  # the main thread waits for an answer of Ray

    threading.Thread(target=end, name="watch-head", daemon=True).start()


def is_unreachable_for(address: str, patience: float, wanted: Callable[[], bool]) -> bool:
    """Whether nothing listens at HOST:PORT for `patience` seconds; looks as long as it is wanted, and gives False when it is not any more."""
    heard = time.monotonic()
    while wanted():
        if is_listening(address):
            heard = time.monotonic()
        elif time.monotonic() - heard >= patience:
            return True
        time.sleep(patience / LOOKS)
    return False


def start(**options: Any) -> None:
    """Start Ray for this process alone: on 127.0.0.1, in a folder that is closed to others and ends with the process."""
    make_token()
    parent = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    if len(os.fsencode(parent)) > LONGEST_TEMPORARY:
        parent = Path("/tmp")
    folders = ExitStack()
    folder = folders.enter_context(scratch_folder("ray", parent))
    spilled = folders.enter_context(scratch_folder("spilled"))

    def end() -> None:
        ray.shutdown()
        with suppress(OSError):  # a process of Ray's may still write; the next one deletes the folder
            folders.close()

    atexit.register(end)
    with listening_on_loopback():
        places = {"_temp_dir": str(folder), "object_spilling_directory": str(spilled)}
        ray.init(address="local", namespace=NAMESPACE, include_dashboard=False, **places, **options)


def keep_logs(folder: str) -> str:
    """Copy the logs of a Ray that ends with this process to a local folder; give the words for where Ray's logs are."""
    node = ray._private.worker._global_node
    if not node.ray_init_cluster or storage.is_url(folder):
        return "in Ray's logs"
    with suppress(shutil.Error):  # of files that are written or deleted meanwhile
        shutil.copytree(node.get_logs_dir_path(), folder, symlinks=True, dirs_exist_ok=True)
    return f"below {folder}"


@contextmanager
def listening_on_loopback() -> Iterator[None]:
    """Let a Ray that is started or joined inside listen on 127.0.0.1, not on all addresses."""
    # Ray's switch for it, read at import; meant for firewalls that ask, and the same on Linux.
    switch, constants = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", ray._private.ray_constants
    before = os.environ.get(switch), constants.ENABLE_RAY_CLUSTER
    os.environ[switch], constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        os.environ.pop(switch) if before[0] is None else os.environ.update({switch: before[0]})
        constants.ENABLE_RAY_CLUSTER = before[1]


def make_token() -> None:
    """Make Ray's token for this user alone where there is none; Ray would let all users of the machine read it."""
    token = Path.home() / ".ray" / "auth_token"
    if os.environ.get("RAY_AUTH_MODE") != "token" or {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        return
    with suppress(FileExistsError):
        token.parent.mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(secrets.token_hex(32))
    token.chmod(0o600)


def local_head_address() -> str | None:
    """Address of the head that this user or root started here with `ray start`; None where there is none."""
    file = Path(ray._private.utils.get_ray_address_file(None))  # in a folder that everybody can write to
    try:
        about = file.lstat()
        address = file.read_text().strip() if stat.S_ISREG(about.st_mode) and about.st_uid in (0, os.getuid()) else ""
    except OSError:
        return None
    return address if is_listening(address) else None


def listens_only_on_loopback(address: str) -> bool:
    """Whether a head answers at a loopback address and not at this machine's own, which Ray would take in its place."""
    host, _, port = address.rpartition(":")
    return is_loopback(host) and not is_listening(f"{ray.util.get_node_ip_address()}:{port}")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine for itself alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_listening(address: str) -> bool:
    """Whether something listens at HOST:PORT or ray://HOST:PORT; words as "auto" are left to Ray. Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return address in ("auto", "local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def count_nodes() -> int:
    """Machines in the cluster, by address."""
    return len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]})


def worker_resources(placement: Placement, workers: WorkerRange) -> WorkerResources:
    """What each worker asks for in this cluster, with one whole CPU left for data."""
    return fit_workers(
        placement, workers, [node["Resources"] for node in ray.nodes() if node["Alive"]], node_groups(placement)
    )


def node_groups(placement: Placement) -> list[NodeGroup]:
    """What the cluster's autoscaler may start; empty where nodes are not asked for, where it has not said yet, and where there is none. Ray Train asks the same, and Ray has no public way to."""
    config = ray._private.state.state.get_cluster_config() if placement.autoscaled else None
    groups = config.node_group_configs if config else ()
    return [
        NodeGroup(most=math.inf if group.max_count < 0 else group.max_count, resources=dict(group.resources))
        for group in groups
    ]


def fit_workers(
    placement: Placement, workers: WorkerRange, nodes: Sequence[Mapping[str, float]], groups: Sequence[NodeGroup] = ()
) -> WorkerResources:
    """What each of `workers` asks for in a cluster of nodes with these resources.

    One whole CPU of a node is left: without it the data stage waits for ever, without a word. A cluster that scales itself is taken as it will be.
    Raises ConfigError naming both numbers when the least workers have no room, or the most could leave none for data.
    """
    name, least = placement.worker_resource, workers.least
    if placement.autoscaled:
        return fit_autoscaled_workers(placement, workers, groups)
    cpus, gpus, units = (sum(node.get(resource, 0) for node in nodes) for resource in ("CPU", "GPU", str(name)))
    if placement.device == "cuda" and gpus < least:
        raise ConfigError(
            f"workers ({workers}) with placement.device cuda need as many GPUs, the cluster has {gpus:g}; use fewer workers, placement.device cpu, or placement.autoscaled"
        )
    if name is not None and units < least:
        raise ConfigError(
            f"workers ({workers}) need as many units of placement.worker_resource ({name}), the cluster has {units:g}; start nodes with --resources '{{\"{name}\": 1}}', or use placement.autoscaled"
        )
    gpu = placement.device != "cpu" and gpus >= least
    bounds = [resource for resource in ("GPU" if gpu else None, name) if resource]
    shares = [placement.worker_cpus] if placement.worker_cpus else SHARES
    share = next((share for share in shares if leaves_one_cpu(nodes, bounds, workers, share)), None)
    if share is None:
        raise ConfigError(
            f"workers ({workers}) do not fit: the cluster has {cpus:g} CPUs, and one whole CPU must be left for data; {remedy(nodes, bounds, workers, shares[-1])}"
        )
    return WorkerResources(cpus=share, gpu=gpu, custom=name)


def leaves_one_cpu(
    nodes: Sequence[Mapping[str, float]], bounds: Sequence[str], workers: WorkerRange, share: float
) -> bool:
    """Whether some node keeps a whole CPU, wherever the workers are put; a node holds no more of them than it has of each resource in `bounds`.

    An elastic group fills what is left when nodes go: there must be a node that it cannot fill.
    """
    needed = 0
    for node in nodes:
        cpus, held = node.get("CPU", 0), min([workers.most, *(node.get(resource, 0) for resource in bounds)])
        if cpus - held * share >= 1:
            return True
        if cpus >= 1:
            needed += int((cpus - 1) / share) + 1
    return not workers.elastic and workers.most < needed


def remedy(nodes: Sequence[Mapping[str, float]], bounds: Sequence[str], workers: WorkerRange, share: float) -> str:
    """What to do where workers of this share leave no CPU for data."""
    most = max(
        (
            most
            for most in range(1, workers.most)
            if leaves_one_cpu(nodes, bounds, WorkerRange(least=min(most, workers.least), most=most), share)
        ),
        default=0,
    )
    if most == 0:
        return (
            "give Ray 2 CPUs or more"
            if share == SHARES[-1]
            else f"give Ray more, or lower placement.worker_cpus ({share:g})"
        )
    beside = ", or name the nodes that train with placement.worker_resource" if workers.elastic and not bounds else ""
    return f"use at most {most} worker{'s' * (most > 1)}{beside}"


def fit_autoscaled_workers(placement: Placement, workers: WorkerRange, groups: Sequence[NodeGroup]) -> WorkerResources:
    """What each worker asks for in a cluster whose nodes come when they are asked for.

    Raises ConfigError where all nodes that may come could not hold the most workers: Ray's autoscaler starts none for a request that it cannot meet whole.
    """
    if placement.device == "auto":
        raise ConfigError(
            "placement.autoscaled needs placement.device cuda or cpu: the nodes that would tell are not there yet"
        )
    resources = WorkerResources(
        cpus=placement.worker_cpus or 1.0, gpu=placement.device == "cuda", custom=placement.worker_resource
    )
    needs = resources.to_ray()
    if groups and (room := sum(group.holds(needs) for group in groups)) < workers.most:
        each = ", ".join(f"{need:g} {name}" for name, need in needs.items())
        raise ConfigError(
            f"workers ({workers}) need more than the cluster may start: its nodes hold {room:g} workers of {each}; use fewer, or raise max_workers (maxReplicas on Kubernetes) of a kind of node"
        )
    return resources


def stream_cpus(resources: WorkerResources, workers: WorkerRange, groups: Sequence[NodeGroup]) -> float:
    """CPUs that a stream may ask an autoscaler for: of the kinds of nodes that no worker fits on, else what the workers leave. Infinite where no autoscaler has said what it may start.

    Ray sends what the stream and an elastic group ask for as one request, and its autoscaler starts nothing, no node for a worker either, for one that it cannot meet whole.
    """
    if not groups:
        return math.inf
    with_cpus = [group for group in groups if group.holds({"CPU": 1})]
    apart = [group for group in with_cpus if not group.holds(resources.to_ray())]
    cpus = sum(group.most * group.resources["CPU"] for group in apart or with_cpus)
    return max(1.0, cpus - (0 if apart else workers.most * resources.cpus) - STAGES)
