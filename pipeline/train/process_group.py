"""Process group for workers on a single machine, with sockets that no other machine can reach."""

import os
import socket
from datetime import timedelta

import psutil
import ray
import torch.distributed as dist
from ray.train.torch import TorchConfig

from pipeline.on_ray import ray_private

LOOPBACK = "127.0.0.1"
listening: list[socket.socket] = []
"""The socket of the group's store, in rank 0's process.

`listen` adds the socket, and `join` hands it over to the store. Otherwise, the list is empty.
"""


class LoopbackConfig(TorchConfig):
    """Settings of Ray Train's process group, with the store and all connections on 127.0.0.1.

    By default, Ray Train's store listens on all addresses, so other machines could change its contents.
    """

    @property
    def backend_cls(self) -> type:
        return LoopbackBackend


class LoopbackBackend(ray_private.torch_backend()):
    """Set up the process group in the workers."""

    # worker_group has no annotation, because its type depends on the version of Ray Train.
    def on_start(self, worker_group, backend_config: TorchConfig) -> None:
        worker_group.execute(ray_private.set_rank_variables)
        port, world = worker_group.execute_single(0, listen), len(worker_group)
        timeout = timedelta(seconds=backend_config.timeout_s)
        settings = (world, port, backend_config.backend, timeout)
        ray.get([worker_group.execute_single_async(rank, join, rank, *settings) for rank in range(world)])


def listen() -> int:
    """Open the store's socket on a free port, in rank 0's process, and return the port."""
    listening[:] = [socket.create_server((LOOPBACK, 0))]
    return listening[0].getsockname()[1]


def join(
    rank: int, world: int, port: int, backend: str, timeout: timedelta, start_timeout: timedelta | None = None
) -> None:
    """Join the group; rank 0 also runs the store. `start_timeout` is the store's timeout; default: `timeout`."""
    if name := _loopback_interface():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", name)
    opened = listening.pop().detach() if rank == 0 else None
    wait = start_timeout or timeout
    store = dist.TCPStore(LOOPBACK, port, world, is_master=rank == 0, timeout=wait, master_listen_fd=opened)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)


def _loopback_interface() -> str | None:
    """Return the name of the network interface with the address 127.0.0.1; None if there is none."""
    addresses = psutil.net_if_addrs().items()
    return next((name for name, own in addresses if any(address.address == LOOPBACK for address in own)), None)
