"""Names of Ray 2.60 that are not public, each with its reason; nothing else in the package uses such names.

Imports inside functions keep this module light: those who start Ray need neither Ray Data nor torch.
"""

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

LIGHT_SETUP = "ray_worker.py"


def connection() -> Any:
    """Return this process's connection to a cluster (None without one); another object after another `ray.init`.

    There is no public object for a connection, nor a public way to ask for the address of its GCS (`gcs_address`),
    whether this process started the cluster (`ray_init_cluster`), or the folder of its logs (`get_logs_dir_path()`).
    """
    return ray._private.worker._global_node


def address_file() -> Path:
    """Return the file in which `ray start` notes the address of this machine's head.

    `ray.init("auto")` reads it without checking who wrote it, and anybody may.
    """
    return Path(ray._private.utils.get_ray_address_file(None))


@contextmanager
def listening_on_loopback() -> Generator[None]:
    """Make Ray listen on 127.0.0.1 only, where it is started or joined inside this context.

    Ray has a variable for it, read at import and meant for firewalls that ask, and no option of `ray.init`.
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
    """Start processes by ray_worker.py, which takes 0.6 s of CPU less, in a Ray that is started inside this context.

    Ray has no option for the script that sets a process up; joining a cluster that runs already is not affected.
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
    """Return what the autoscaler reported of its node types (`node_group_configs`), or None.

    Ray Train asks in the same way; the public functions list nodes that run, not those that may come.
    """
    return ray._private.state.state.get_cluster_config()


def execution_callback() -> Any:
    """Return the base class of callbacks on Ray Data's scheduling loop.

    `DataContext.custom_execution_callback_classes` is public, the class of its elements is not.
    """
    from ray.data._internal.execution.execution_callback import ExecutionCallback

    return ExecutionCallback


def drop_block_statistics(executor: Any) -> None:
    """Drop the statistics of about 1 KB that each operator keeps for every finished block until the stream ends.

    There is no setting for it (ray issue 66016), and a long run would grow by gigabytes.
    """
    from ray.data._internal.execution.operators.map_operator import MapOperator

    for operator in executor._topology:
        if isinstance(operator, MapOperator):
            operator._output_blocks_stats.clear()


def consumer_waits(executor: Any) -> bool:
    """Return whether a stream's consumer has nothing to read."""
    return executor._consumer_idling()


def set_cpus_of_last_step(stream: Any, cpus: float) -> None:
    """Set the CPUs of the tasks of a stream's last operator where its method has no option for them (repartition)."""
    stream._logical_plan.dag.ray_remote_args["num_cpus"] = cpus


def torch_backend() -> Any:
    """Return the class that sets up Ray Train's process group: the base for one that listens elsewhere."""
    from ray.train.torch.config import _TorchBackend

    return _TorchBackend


def set_rank_variables() -> None:
    """Set RANK, WORLD_SIZE and their like in a worker, as Ray Train does before it joins its own process group."""
    from ray.train.torch.config import _set_torch_distributed_env_vars

    _set_torch_distributed_env_vars()


def keep_from_trials(variables: Iterable[str]) -> None:
    """Keep environment variables out of the runtime environment of Tune's trials.

    Tune puts cloud logins there, where the dashboard shows them; it has no option against it.
    """
    from ray.tune.execution.class_cache import ENV_VARS_TO_PROPAGATE

    ENV_VARS_TO_PROPAGATE.difference_update(variables)
