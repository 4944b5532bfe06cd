"""A process group of test processes, one per rank."""

import os
from collections.abc import Generator
from contextlib import contextmanager

import torch
import torch.distributed as dist


@contextmanager
def rank_of_group(rank: int, folder: str, world: int = 2) -> Generator[None]:
    """Join a gloo group with its store in `folder`, in a process of one thread; after the context, end the process.

    The process ends with exit code 0 and without Python's cleanup. gloo's threads live until the process ends, and a
    thread that frees a tensor during Python's cleanup aborts the process ("terminate called without an active
    exception"). An error inside the context is raised as usual.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    yield
    dist.destroy_process_group()
    os._exit(0)
