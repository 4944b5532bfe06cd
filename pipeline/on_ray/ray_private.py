"""Private names of Ray 2.58 to 2.60, each with the reason for its use; no other file of the package uses private names.

Some imports are inside functions, so that a process that only starts Ray does not load Ray Data or torch.
"""

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

LIGHT_SETUP = "ray_worker.py"


def connection() -> Any:
    """Return this process's connection to a cluster, or None. Each `ray.init` makes a new object.

    Ray has no public way to get the address of its GCS (`gcs_address`) or the folder of its logs
    (`get_logs_dir_path()`).
    """
    return ray._private.worker._global_node


@contextmanager
def listening_on_loopback() -> Generator[None]:
    """Make a Ray that is started or joined inside this context listen on 127.0.0.1 only.

    `ray.init` has no option for this. Ray has an environment variable for this, to avoid firewall popups on macOS and
    Windows. Ray copies the variable to a constant when Ray is imported, so the constant is changed too.
    """
    variable, constants = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", ray._private.ray_constants
    before = os.environ.get(variable), constants.ENABLE_RAY_CLUSTER
    os.environ[variable], constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        os.environ.pop(variable) if before[0] is None else os.environ.update({variable: before[0]})
        constants.ENABLE_RAY_CLUSTER = before[1]


@contextmanager
def light_worker_setup() -> Generator[None]:
    """Let a Ray that is started inside this context use ray_worker.py for its workers: 0.6 s less CPU time per worker.

    Ray has no public option for this script. A running cluster that is joined keeps Ray's own script.
    """
    constants = ray._private.ray_constants
    before, constants.SETUP_WORKER_FILENAME = (
        constants.SETUP_WORKER_FILENAME,
        str(Path(__file__).with_name(LIGHT_SETUP)),
    )
    try:
        yield
    finally:
        constants.SETUP_WORKER_FILENAME = before


def autoscaler_config() -> Any:
    """Return the autoscaler's report of its node types (`node_group_configs`), or None if there is no report.

    Ray Train makes the same call. Ray's public functions list running nodes, but not the nodes that may be started.
    """
    return ray._private.state.state.get_cluster_config()


def execution_callback() -> Any:
    """Return the base class of callbacks on Ray Data's scheduling loop.

    The list `DataContext.custom_execution_callback_classes` is public, but the base class of its elements is not.
    """
    from ray.data._internal.execution.execution_callback import ExecutionCallback

    return ExecutionCallback


def drop_block_statistics(executor: Any) -> None:
    """Drop the statistics that each operator keeps until the stream ends, about 1 KB for every finished block.

    Ray has no setting to turn these statistics off (ray issue 66016). In a long run they would take gigabytes.
    """
    from ray.data._internal.execution.operators.map_operator import MapOperator

    for operator in executor._topology:
        if isinstance(operator, MapOperator):
            operator._output_blocks_stats.clear()


def consumer_waits(executor: Any) -> bool:
    """Return whether a stream's consumer has nothing to read."""
    return executor._consumer_idling()


def set_cpus_of_last_step(stream: Any, cpus: float) -> None:
    """Set the CPUs that each task of a stream's last operator requests; `repartition` has no option for this."""
    stream._logical_plan.dag.ray_remote_args["num_cpus"] = cpus


def replica_checks(application: str, deployment: str) -> list[ray.ObjectRef[None]]:
    """Ask each replica of Ray Serve for its health; the reference raises RayError if the replica has died.

    Requests of a handle wait until a replica has room for them, so a busy replica would seem dead. The controller's
    public status is up to 10 seconds old.
    """
    checks, beginning = [], f"SERVE_REPLICA::{application}#{deployment}#"
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["name"].startswith(beginning):
            try:
                replica = ray.get_actor(actor["name"], namespace=actor["namespace"])
            except ValueError:
                continue  # it has died since
            checks.append(replica.check_health.remote())
    return checks


def torch_backend() -> Any:
    """Return Ray Train's class that sets up the process group. Our subclass of this class uses another address."""
    from ray.train.torch.config import _TorchBackend

    return _TorchBackend


def set_rank_variables() -> None:
    """Set RANK, WORLD_SIZE and similar variables in a worker, as Ray Train does before it sets up a process group."""
    from ray.train.torch.config import _set_torch_distributed_env_vars

    _set_torch_distributed_env_vars()


def keep_from_trials(variables: Iterable[str]) -> None:
    """Keep environment variables out of the runtime environment of Tune's trials.

    Tune copies cloud credentials into the runtime environment, and has no option to turn this off. The dashboard shows
    the runtime environment.
    """
    from ray.tune.execution.class_cache import ENV_VARS_TO_PROPAGATE

    ENV_VARS_TO_PROPAGATE.difference_update(variables)
